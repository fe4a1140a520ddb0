//! The machine of a run, as run.json describes it.

use std::fs;

use anyhow::Context;
use rustix::system::uname;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::record::Machine;

impl Machine {
    /// Reads about this machine. Unknown texts are empty.
    pub fn read(shares: &Shares) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let name = uname();
        let meminfo = read("/proc/meminfo");
        let kib = after(&meminfo, "MemTotal:", ':')
            .and_then(|kib| kib.trim_end_matches("kB").trim().parse::<u64>().ok());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            processor: after(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
            processors: u32::try_from(cores).unwrap_or(u32::MAX),
            memory: kib.unwrap_or_default().saturating_mul(1024),
            kernel: format!(
                "{} {}",
                name.sysname().to_string_lossy(),
                name.release().to_string_lossy()
            ),
            system: after(&read("/etc/os-release"), "PRETTY_NAME=", '=')
                .map(|name| name.trim_matches('"').to_owned())
                .unwrap_or_default(),
            tcp: ["ipv4/tcp_congestion_control", "core/default_qdisc"]
                .map(|name| read(&format!("/proc/sys/net/{name}")).trim().to_owned())
                .join(", "),
            server_cpus: shares.server.clone().unwrap_or_default(),
            load_cpus: shares.load.clone().unwrap_or_default(),
        }
    }
}

/// The word for all processors.
pub const ANY: &str = "any";

/// Which processors servers and loads run on, written as for taskset. `None`: any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// Processors of servers.
    pub server: Option<String>,
    /// Processors of loads, publishers and profilers.
    pub load: Option<String>,
}

impl Shares {
    /// Takes the processors that were asked for. By default, of the processors that this program
    /// may use, servers get the lower half and loads the upper half, so that neither takes time
    /// from the other. On a machine with one processor both run anywhere.
    pub fn new(server: Option<&str>, load: Option<&str>) -> Self {
        let usable: Vec<usize> = sched_getaffinity(None)
            .map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
            .unwrap_or_default();
        let (lower, upper) = usable.split_at(usable.len() / 2);
        let chosen = |asked: Option<&str>, half: &[usize]| match asked {
            Some(ANY) => None,
            Some(list) => Some(list.to_owned()),
            None if lower.is_empty() => None,
            None => Some(half.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
        };
        Self { server: chosen(server, lower), load: chosen(load, upper) }
    }

    /// Moves this thread, and everything it starts later, to the processors of loads, so that
    /// measuring takes no time from the server. Does nothing if servers or loads may run anywhere:
    /// no processor is to be kept free then, and a server would inherit the restriction.
    ///
    /// # Errors
    /// There are no such processors.
    pub(super) fn take_seat(&self) -> anyhow::Result<()> {
        let (Some(_), Some(list)) = (&self.server, &self.load) else { return Ok(()) };
        let mut set = CpuSet::new();
        for cpu in cpus(list).into_iter().flatten().filter(|&cpu| cpu < CpuSet::MAX_CPU) {
            set.set(cpu);
        }
        sched_setaffinity(None, &set).with_context(|| format!("processors {list} of loads"))
    }
}

/// Returns the text after `separator` in the first line that begins with `key`.
fn after(text: &str, key: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(separator)?.1.trim().to_owned())
}

/// Parses a list of processors as taskset writes it: `0,2-4` is four processors. `None` if it is no
/// such list.
pub fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse().ok()?);
        if first > last || last >= 4096 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_loads_are_apart_unless_something_else_is_asked_for() {
        let shares = Shares::new(None, None);
        let of = |list: &Option<String>| list.as_deref().map(|list| cpus(list).unwrap());
        if let (Some(server), Some(load)) = (of(&shares.server), of(&shares.load)) {
            assert!(!server.is_empty() && server.iter().all(|cpu| !load.contains(cpu)));
        }
        assert_eq!(Shares::new(Some("any"), Some("any")), Shares::default());
        assert_eq!(Shares::new(Some("0-1"), None).server.as_deref(), Some("0-1"));
    }

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::read(&Shares { server: Some("0".to_owned()), load: None });
        assert!(machine.processors > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(machine.tcp.len() > 4, "{machine:?}");
    }

    #[test]
    fn processors_are_those_that_taskset_would_use() {
        assert_eq!(cpus("0,2-4"), Some(vec![0, 2, 3, 4]));
        for list in ["", "x", "1-0", "0-99999"] {
            assert_eq!(cpus(list), None, "{list}");
        }
    }
}
