//! Sends traces to the collector: OTLP in JSON, over HTTP.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::{Client, StatusCode, Url, header};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{Finished, Kept, Traces, Value};
use crate::client::{self, Unusable};
use crate::config;
use crate::sessions::Doing;

/// Most traces in one request.
const BATCH: usize = 256;
/// How long the first trace of a request waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long the collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a request is tried that the collector could not take.
const TRIES: u32 = 3;
/// The pause before a request is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the collector.
const FAREWELL: Duration = Duration::from_secs(1);

/// Kinds of spans and the status of one that failed, by their numbers in OTLP.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// What sends the traces, from now on until [`Exporter::flush`].
#[derive(Debug)]
pub struct Exporter {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

struct Sending {
    client: Client,
    url: Url,
    /// What each request says of this process.
    resource: Json,
    kept: Arc<Kept>,
    is_failing: bool,
}

/// Why a request was in vain, and whether it may be tried again.
struct Failure {
    why: String,
    may_pass: bool,
}

impl Exporter {
    /// Begins to send what is finished. `node` is the name of this node, if it has one.
    ///
    /// # Errors
    /// The endpoint cannot be asked.
    pub(crate) fn start(
        traces: &Traces,
        config: &config::Traces,
        node: &str,
    ) -> Result<Option<Self>, Unusable> {
        let Some(kept) = traces.0.clone() else { return Ok(None) };
        let finished = kept.finished.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(finished) = finished else { return Ok(None) };
        let endpoint = config.endpoint.trim_end_matches('/');
        let (client, url) = client::new(&format!("{endpoint}/v1/traces"), &[])?;
        let mut attributes = vec![
            attribute("service.name", &Value::Text("headwater".to_owned())),
            attribute("service.version", &Value::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ];
        if !node.is_empty() {
            attributes.push(attribute("service.instance.id", &Value::Text(node.to_owned())));
        }
        let resource = json!({ "attributes": attributes });
        let sending = Sending { client, url, resource, kept, is_failing: false };
        let (stop, stopped) = oneshot::channel();
        Ok(Some(Self { stop, task: tokio::spawn(sending.run(finished, stopped)) }))
    }

    /// Sends what is left, for a second at most.
    pub async fn flush(self) {
        // If the task has ended, nothing is left.
        let _ = self.stop.send(());
        let _ = timeout(FAREWELL, self.task).await;
    }
}

impl Sending {
    async fn run(mut self, mut finished: Receiver<Finished>, mut stopped: oneshot::Receiver<()>) {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                () = gather(&mut finished, &mut batch) => {}
                _ = &mut stopped => break,
            }
            let sent = self.deliver(&batch);
            tokio::select! {
                () = sent => batch.clear(),
                _ = &mut stopped => break,
            }
        }
        // The last request that was begun may not have arrived: its spans have the same ids again.
        finished.close();
        loop {
            while batch.len() < BATCH
                && let Ok(next) = finished.try_recv()
            {
                batch.push(next);
            }
            if batch.is_empty() {
                return;
            }
            // There is no time for more than one try.
            if let Err(failure) = self.post(self.body(&batch)).await {
                return tracing::warn!(why = failure.why, "the last traces are lost");
            }
            batch.clear();
        }
    }

    /// Sends a batch, or counts it as dropped.
    async fn deliver(&mut self, batch: &[Finished]) {
        let body = self.body(batch);
        let mut tried = 1;
        let failed = loop {
            match self.post(body.clone()).await {
                Ok(()) => break None,
                Err(failure) if failure.may_pass && tried < TRIES => {
                    self.tell(Some(&failure.why));
                    sleep(PAUSE).await;
                    tried += 1;
                }
                Err(failure) => break Some(failure.why),
            }
        };
        self.tell(failed.as_deref());
        if failed.is_some() {
            self.kept.drop_spans(batch.iter().map(|trace| trace.spans()).sum());
        }
    }

    /// Logs when the collector begins to fail, and when it takes traces again.
    fn tell(&mut self, failed: Option<&str>) {
        match (failed, std::mem::replace(&mut self.is_failing, failed.is_some())) {
            (Some(why), false) => tracing::warn!(why, "traces.endpoint takes no traces"),
            (None, true) => tracing::info!("traces.endpoint takes traces again"),
            _ => {}
        }
    }

    async fn post(&self, body: Bytes) -> Result<(), Failure> {
        let request = self.client.post(self.url.clone());
        let request = request.header(header::CONTENT_TYPE, "application/json");
        let sent = request.body(body).send();
        match timeout(PATIENCE, sent).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            Ok(Ok(answer)) => {
                let why = format!("the status is {}", answer.status());
                // Those by which a collector asks for another try (OTLP, "Failures").
                let may_pass = matches!(
                    answer.status(),
                    StatusCode::TOO_MANY_REQUESTS
                        | StatusCode::BAD_GATEWAY
                        | StatusCode::SERVICE_UNAVAILABLE
                        | StatusCode::GATEWAY_TIMEOUT
                );
                Err(Failure { why, may_pass })
            }
            Ok(Err(error)) => Err(Failure { why: client::reason(error), may_pass: true }),
            Err(_) => Err(Failure { why: format!("no answer in {PATIENCE:?}"), may_pass: true }),
        }
    }

    /// An `ExportTraceServiceRequest`.
    fn body(&self, batch: &[Finished]) -> Bytes {
        let spans: Vec<_> = batch.iter().flat_map(spans).collect();
        let scope = json!({ "name": "headwater" });
        let scope = json!({ "scope": scope, "spans": spans });
        json!({ "resourceSpans": [{ "resource": self.resource, "scopeSpans": [scope] }] })
            .to_string()
            .into()
    }
}

/// Fills a batch: waits for a first trace, and then for a while for others. [`Sending::kept`] has a sender, so the channel
/// does not close meanwhile.
async fn gather(finished: &mut Receiver<Finished>, batch: &mut Vec<Finished>) {
    while batch.is_empty() {
        finished.recv_many(batch, BATCH).await;
    }
    let more = async {
        while batch.len() < BATCH && finished.recv_many(batch, BATCH - batch.len()).await > 0 {}
    };
    let _ = timeout(GATHER, more).await;
}

/// The spans of a trace: all of it, and each phase.
fn spans(trace: &Finished) -> Vec<Json> {
    let Finished { id, span, parent, about, began, phases, end, attributes, error } = trace;
    let trace_id = format!("{id:032x}");
    let id = |id: u64| format!("{id:016x}");
    let root = id(*span);
    let common = [
        ("headwater.protocol", Value::Text(about.protocol.to_owned())),
        ("headwater.stream", Value::Text(about.path.clone())),
    ];
    let all = common.iter().chain(attributes);
    let attributes: Vec<_> = all.map(|(name, value)| attribute(name, value)).collect();
    let mut whole = json!({
        "traceId": trace_id,
        "spanId": root,
        "name": match about.doing {
            Doing::Publish => "publish",
            Doing::Play => "play",
        },
        "kind": SERVER,
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = parent {
        whole["parentSpanId"] = id(*parent).into();
    }
    if let Some(error) = error {
        whole["status"] = json!({ "code": ERROR, "message": error });
    }
    let mut spans = vec![whole];
    let mut start = *began;
    for (number, (name, end)) in (1..).zip(phases) {
        spans.push(json!({
            "traceId": trace_id,
            // A request that is repeated must have the same ids, or the collector counts its spans twice.
            "spanId": id(span.wrapping_add(number)),
            "parentSpanId": root,
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": start.to_string(),
            "endTimeUnixNano": end.to_string(),
        }));
        start = *end;
    }
    spans
}

/// A `KeyValue`. Numbers of 64 bits are text in the JSON of protobuf.
fn attribute(name: &str, value: &Value) -> Json {
    let value = match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}
