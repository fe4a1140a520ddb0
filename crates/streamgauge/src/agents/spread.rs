//! How a run is spread over processes, and these over machines.

use std::net::IpAddr;

use anyhow::ensure;

use super::Crew;
use super::clock::Offset;
use crate::shard::{Carrier, Needs, Pipes};

/// How a run is spread: over equally many processes of each machine.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    crew: Option<&'a Crew>,
    /// Processes of each machine.
    each: u32,
    /// What a machine needs.
    needs: Needs,
}

impl<'a> Spread<'a> {
    /// Spreads so many connections to the server of a URL: over the processes that are asked for,
    /// or as few as may open enough files. `allowed` is how many a process of this machine may.
    ///
    /// # Errors
    /// The number asked for is too small, or cannot be shared equally.
    pub fn new(
        (connections, url): (u64, &str),
        asked: Option<u32>,
        allowed: u64,
        crew: Option<&'a Crew>,
    ) -> anyhow::Result<Self> {
        let machines = crew.map_or(1, Crew::count).max(1);
        if let Some(asked) = asked {
            ensure!(
                asked.is_multiple_of(machines),
                "{asked} processes cannot be shared equally by {machines} agents"
            );
        }
        let needs = Needs::new(connections.div_ceil(machines.into()), url);
        let allowed = crew.map_or(allowed, Crew::files);
        let each = needs.processes(asked.map(|asked| asked / machines), allowed)?;
        Ok(Self { crew, each, needs })
    }

    /// The agents, unless the run is on this machine.
    pub fn crew(&self) -> Option<&'a Crew> {
        self.crew
    }

    /// What starts the processes.
    pub fn carrier(&self) -> &'a dyn Carrier {
        match self.crew {
            Some(crew) => crew,
            None => &Pipes,
        }
    }

    /// How many processes there are in all.
    pub fn processes(&self) -> u32 {
        self.each * self.machines()
    }

    /// How many processes each machine has.
    pub fn each(&self) -> u32 {
        self.each
    }

    /// How many machines there are.
    pub fn machines(&self) -> u32 {
        self.crew.map_or(1, Crew::count).max(1)
    }

    /// How far the clocks of each machine are ahead of this one's; `None` for this one.
    pub fn offsets(&self) -> Vec<Option<Offset>> {
        let of = |machine| self.crew.and_then(|crew| crew.offset(machine as usize));
        (0..self.machines()).map(of).collect()
    }

    /// Which machine has the process with this number, from 0.
    pub fn machine_of(&self, process: u32) -> usize {
        (process / self.each.max(1)) as usize
    }

    /// Local address of a process's connections; `None` if the system picks it.
    pub fn source(&self, process: u32) -> Option<IpAddr> {
        self.needs.source(process % self.each.max(1))
    }

    /// Name of a process in messages.
    pub fn name_of(&self, process: u32) -> String {
        match self.crew {
            None => format!("process {}", process + 1),
            Some(crew) if self.each == 1 => {
                format!("agent {}", crew.name(self.machine_of(process)))
            }
            Some(crew) => {
                let name = crew.name(self.machine_of(process));
                format!("agent {name}, process {}", process % self.each + 1)
            }
        }
    }
}
