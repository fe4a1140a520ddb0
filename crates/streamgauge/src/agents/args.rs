//! Options of the command line.

use std::path::PathBuf;

use clap::Args;

use super::{Crew, Servers, agent};
use crate::Exit;

/// Waits for runs that several machines share, and takes part in them, one at a time
#[derive(Debug, Args)]
pub struct AgentArguments {
    /// NATS server, nats://HOST:PORT or tls://HOST:PORT; several separated by commas
    #[arg(long, value_name = "URL", value_delimiter = ',', required = true)]
    nats: Vec<String>,
    /// A file with credentials for NATS
    #[arg(long, value_name = "FILE")]
    nats_credentials: Option<PathBuf>,
    /// Name in results; by default the machine's and some letters
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl AgentArguments {
    /// Serves runs until SIGINT or SIGTERM.
    ///
    /// # Errors
    /// The name is none, or NATS refuses.
    pub fn run(self) -> anyhow::Result<Exit> {
        let servers = Servers { urls: self.nats, credentials: self.nats_credentials };
        agent::serve(&servers, self.name)
    }
}

/// Machines that share a run.
#[derive(Debug, Clone, Args)]
pub struct CrewArguments {
    /// Share the run among this many machines on which `streamgauge agent` runs
    #[arg(long, value_name = "N", requires = "nats", value_parser = clap::value_parser!(u32).range(1..=250))]
    agents: Option<u32>,
    /// NATS server where the agents are, nats://HOST:PORT or tls://HOST:PORT; several separated by commas
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "agents")]
    nats: Vec<String>,
    /// A file with credentials for NATS
    #[arg(long, value_name = "FILE", requires = "agents")]
    nats_credentials: Option<PathBuf>,
}

impl CrewArguments {
    /// Reserves the machines, if there are to be any.
    ///
    /// # Errors
    /// There are not enough, or NATS cannot be reached.
    pub fn crew(&self) -> anyhow::Result<Option<Crew>> {
        let Some(count) = self.agents else { return Ok(None) };
        let servers =
            Servers { urls: self.nats.clone(), credentials: self.nats_credentials.clone() };
        Crew::reserve(&servers, count).map(Some)
    }
}
