//! Command-line options that say which certificates are trusted.

use std::path::PathBuf;

use viewer::tls::Trust;

/// Which certificates are trusted.
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
    /// What the options mean.
    pub(crate) fn trust(&self) -> Trust {
        match &self.authorities {
            Some(path) => Trust::Authorities(path.clone()),
            None if self.insecure => Trust::Anybody,
            None => Trust::System,
        }
    }
}
