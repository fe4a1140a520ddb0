//! Whose certificates are good, as it is written on the command line.

use std::path::PathBuf;

use viewer::tls::Trust;

/// Whose certificates are good.
#[derive(Debug, clap::Args)]
pub(crate) struct Certificates {
    /// Take any certificate
    #[arg(long)]
    insecure: bool,
    /// Trust these authorities, in PEM, instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    authorities: Option<PathBuf>,
}

impl Certificates {
    /// What they come to.
    pub(crate) fn trust(&self) -> Trust {
        match &self.authorities {
            Some(path) => Trust::Authorities(path.clone()),
            None if self.insecure => Trust::Anybody,
            None => Trust::System,
        }
    }
}
