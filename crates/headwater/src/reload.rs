//! What SIGHUP reads again: `[access]` of the configuration's file, and the files that it names.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::config::{self, Config};

/// The file of a configuration.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// What it had when the server started.
    at_start: Config,
}

impl File {
    /// `at_start` is what was read from the file at `path`, without what the command line changed.
    pub fn new(path: PathBuf, at_start: Config) -> Self {
        Self { path, at_start }
    }

    /// Reads the file again, and lets `access` decide by its `[access]`. Returns what is to be told of that.
    ///
    /// # Errors
    /// The file cannot be read or used, and why. Then nothing changes.
    pub async fn reload(&self, access: &Arc<Access>) -> Result<&'static str, String> {
        let (path, access) = (self.path.clone(), Arc::clone(access));
        let read = spawn_blocking(move || {
            // The certificate or ffmpeg may be missing. That is no reason to let in somebody who must go.
            let config = Config::load_for_any_machine(Some(&path));
            let config = config.map_err(|error| error.to_string())?;
            let taken = access.reload(&config.access).map(|()| config);
            taken.map_err(|error| format!("{}: {error}", path.display()))
        });
        let config = read.await.map_err(|error| error.to_string())??;
        Ok(match self.differs(config) {
            true => "took [access] from the configuration; other changes there need a restart",
            false => "took [access] from the configuration",
        })
    }

    /// Whether the file has something new outside `[access]`.
    fn differs(&self, config: Config) -> bool {
        let rest = |config| Config { access: config::Access::default(), ..config };
        rest(config) != rest(self.at_start.clone())
    }
}
