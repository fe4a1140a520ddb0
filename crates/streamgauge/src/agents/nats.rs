//! Connects to NATS.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use async_nats::{Client, ConnectErrorKind, ConnectOptions};

use super::wire;

/// How long a server may take to accept a connection.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long an answer may take. An agent that is silent for so long is given up anyway.
const ANSWERING: Duration = wire::SILENCE;
/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_secs(1);
/// How many messages wait for the connection, and for their reader. What children say is limited
/// besides.
const WAITING: usize = 16 << 10;

/// The NATS servers of a run, and the right to use them.
#[derive(Debug, Clone)]
pub struct Servers {
    /// Addresses: `nats://HOST:PORT`, `tls://HOST:PORT`.
    pub urls: Vec<String>,
    /// A file with credentials.
    pub credentials: Option<PathBuf>,
}

impl Servers {
    /// Connects. With `patient`, waits for a server that is not there yet.
    ///
    /// # Errors
    /// No server can be reached, or the server refuses.
    pub(super) async fn connect(&self, name: &str, patient: bool) -> anyhow::Result<Client> {
        let shown = || format!("NATS at {}", self.shown());
        loop {
            match self.options(name)?.connect(self.urls.as_slice()).await {
                Ok(client) => return Ok(client),
                Err(error) => {
                    use ConnectErrorKind::{Dns, Io, MaxReconnects, TimedOut};
                    let comes = matches!(error.kind(), Dns | Io | MaxReconnects | TimedOut);
                    if !(patient && comes) {
                        return Err(error).with_context(shown);
                    }
                    super::log::log(format_args!("waiting for {}: {error}", shown()));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// The addresses for people, without the names and passwords that may be in them.
    pub(super) fn shown(&self) -> String {
        let shown = |url: &String| match url.split_once("://") {
            Some((scheme, rest)) => {
                format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host))
            }
            None => url.rsplit_once('@').map_or(&**url, |(_, host)| host).to_owned(),
        };
        self.urls.iter().map(shown).collect::<Vec<_>>().join(",")
    }

    fn options(&self, name: &str) -> anyhow::Result<ConnectOptions> {
        let options = ConnectOptions::new()
            .name(format!("streamgauge {name}"))
            .ping_interval(Duration::from_secs(2))
            .connection_timeout(CONNECTING)
            .request_timeout(Some(ANSWERING))
            .client_capacity(WAITING)
            .subscription_capacity(WAITING)
            .reconnect_delay_callback(|attempts| {
                Duration::from_millis(if attempts <= 1 { 0 } else { 200 })
            });
        let Some(path) = &self.credentials else { return Ok(options) };
        let shown = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(shown)?;
        options.credentials(&text).with_context(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        let urls = ["nats://ann:p@ss@h:4222", "ann:pass@i", "tls://j"].map(str::to_owned).into();
        let servers = Servers { urls, credentials: None };
        assert_eq!(servers.shown(), "nats://h:4222,i,tls://j");
    }
}
