//! Sends events to a server of the operator: a POST with JSON for each, one after the other.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Url, header};
use tokio::time::{sleep, timeout};

use super::Events;
use crate::client::{self, Unusable};
use crate::config;
use crate::followed::Next;

/// How often one event is tried.
const TRIES: u32 = 4;

/// The pause before the second try. It doubles for each further one.
const PAUSE: Duration = Duration::from_secs(1);

/// The operator's server.
#[derive(Debug)]
pub(crate) struct Webhook {
    client: Client,
    url: Url,
    timeout: Duration,
}

impl Webhook {
    /// Sends nothing yet. `None` if none is configured.
    ///
    /// # Errors
    /// The URL is not one of HTTP, or TLS is not to be had.
    pub(crate) fn new(config: &config::Events) -> Result<Option<Self>, Unusable> {
        if config.webhook.is_empty() {
            return Ok(None);
        }
        let (client, url) = client::new(&config.webhook, &[])?;
        Ok(Some(Self { client, url, timeout: config.timeout.into() }))
    }

    /// Sends all events from now on, until the future is dropped. An event that the server does not take is tried a few
    /// times and then left out. If the server is so slow that events are lost, the next one says how many in the header
    /// `Headwater-Events-Lost`.
    pub(crate) async fn run(&self, events: &Arc<Events>) {
        let (mut place, mut lost, mut failing) = (events.recent().read(None), 0, false);
        loop {
            let record = match events.recent().next(&mut place).await {
                Next::Lost(more) => {
                    lost += more;
                    continue;
                }
                Next::Entry(_, record) => record,
            };
            match self.deliver(record.json(true), lost).await {
                Ok(()) => {
                    if std::mem::take(&mut failing) {
                        tracing::info!("the webhook takes events again");
                    }
                    lost = 0;
                }
                Err(why) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(why, "events.webhook takes no events");
                    }
                    lost += 1;
                }
            }
        }
    }

    async fn deliver(&self, body: String, lost: u64) -> Result<(), String> {
        let mut pause = PAUSE;
        for tried in 1.. {
            let request = self
                .client
                .post(self.url.clone())
                .header(header::CONTENT_TYPE, "application/json")
                .header("headwater-events-lost", lost)
                .body(body.clone());
            let answer = timeout(self.timeout, request.send()).await;
            let why = match answer {
                Ok(Ok(answer)) if answer.status().is_success() => return Ok(()),
                Ok(Ok(answer)) => format!("the status is {}", answer.status()),
                Ok(Err(error)) => client::reason(error),
                Err(_) => format!("no answer in {:?}", self.timeout),
            };
            if tried >= TRIES {
                return Err(why);
            }
            sleep(pause).await;
            pause *= 2;
        }
        Ok(())
    }
}
