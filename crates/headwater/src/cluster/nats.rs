//! NATS as the message system, with a bucket of JetStream.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Context;
use async_nats::connection::State;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::kv::{self, Operation};
use async_nats::jetstream::stream::StorageType;
use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, HeaderValue, ServerAddr, StatusCode, jetstream,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use http::net::LogLimit;
use live::UnixMicros;

use tokio::sync::Mutex;

use super::bus::{Bus, Entry, Failed, Incoming, Subscription, Unwritten};
use super::lease::LASTS;
use crate::clock::Clock;
use crate::config;

/// The bucket of the leases.
const BUCKET: &str = "headwater-streams";

/// A connection to NATS servers.
#[derive(Debug)]
pub(super) struct Nats {
    client: Client,
    /// When it was connected last, in microseconds.
    connected: Arc<AtomicU64>,
    jetstream: jetstream::Context,
    replicas: usize,
    /// The bucket, if it is known. Who finds it unknown makes it, and others wait for that.
    bucket: Mutex<Option<kv::Store>>,
}

fn failed(error: impl std::fmt::Display) -> Failed {
    Failed(error.to_string())
}

/// An address without the user and the password that may be in it: the library does not use them, and logs them.
fn bare(server: &ServerAddr) -> std::io::Result<ServerAddr> {
    let mut url = server.clone().into_inner();
    // Both are possible where there is a host.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    ServerAddr::from_url(url)
}

/// Takes the user and the password, or the token, from the first address that has any.
fn with_user(options: ConnectOptions, servers: &[ServerAddr]) -> anyhow::Result<ConnectOptions> {
    let user = servers.iter().find_map(|server| Some((server.username()?, server.password())));
    let Some((user, password)) = user else { return Ok(options) };
    let decoded = |text| http::percent_decode(text).map(Cow::into_owned).context("cluster.nats");
    Ok(match password {
        Some(password) => options.user_and_password(decoded(user)?, decoded(password)?),
        None => options.token(decoded(user)?),
    })
}

/// The addresses as they are configured, and without users and passwords.
fn servers(config: &config::Cluster) -> anyhow::Result<(Vec<ServerAddr>, Vec<ServerAddr>)> {
    let servers = config.nats.iter().map(|address| address.parse::<ServerAddr>());
    let named = servers.collect::<Result<Vec<_>, _>>().context("cluster.nats")?;
    let bare = named.iter().map(bare).collect::<Result<Vec<_>, _>>().context("cluster.nats")?;
    Ok((named, bare))
}

/// Adds what the servers want to know of this node.
fn with_credentials(
    options: ConnectOptions,
    named: &[ServerAddr],
    config: &config::Cluster,
) -> anyhow::Result<ConnectOptions> {
    let options = with_user(options, named)?;
    if config.credentials.as_os_str().is_empty() {
        return Ok(options);
    }
    let place = || format!("cluster.credentials = {}", config.credentials.display());
    let text = std::fs::read_to_string(&config.credentials).with_context(place)?;
    options.credentials(&text).with_context(place)
}

/// Whether a server is there that takes this node, with JetStream. Returns the server's version. Servers that do not
/// answer are asked one after the other, each for as long as `limit`.
///
/// # Errors
/// No server answers, or it has no JetStream for this node, or the credentials cannot be read.
pub(crate) async fn probe(config: &config::Cluster, limit: Duration) -> anyhow::Result<String> {
    let (named, servers) = servers(config)?;
    let options = ConnectOptions::new().connection_timeout(limit);
    let options = with_credentials(options, &named, config)?;
    let client = options.connect(servers).await?;
    let mut jetstream = jetstream::new(client.clone());
    jetstream.set_timeout(limit);
    jetstream.query_account().await.context("JetStream")?;
    Ok(client.server_info().version)
}

impl Nats {
    /// Connects, or goes on trying to if no server is there.
    ///
    /// # Errors
    /// The credentials cannot be read, or an address is none.
    pub(super) async fn connect(
        config: &config::Cluster,
        node: &str,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let connected = Arc::new(AtomicU64::new(clock.now().0));
        let (named, servers) = servers(config)?;
        let shown: Vec<_> = servers.iter().map(|server| server.as_url_str().to_owned()).collect();
        let credentials = config.credentials.display().to_string();
        tracing::info!(node, servers = ?shown, credentials, "cluster");
        let options = ConnectOptions::new()
            .name(format!("headwater {node}"))
            .ping_interval(Duration::from_secs(1))
            .connection_timeout(Duration::from_secs(1))
            // Parts that wait for a connection are of use for a short time only.
            .client_capacity(256)
            // The answer about a whole window has fewer messages. What waits for a slow reader is bounded.
            .subscription_capacity(4096)
            .reconnect_delay_callback(|attempts| {
                Duration::from_millis(if attempts <= 1 { 0 } else { 100 })
            })
            .event_callback({
                let (connected, credentials) = (Arc::clone(&connected), credentials.clone());
                // Each kind of event has its own limit, so that a frequent one hides no other.
                let told = std::sync::Mutex::new(HashMap::new());
                move |event| {
                    if matches!(event, Event::Connected) {
                        connected.store(clock.now().0, Ordering::Relaxed);
                        tracing::info!("NATS: {event}");
                    } else {
                        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                        let limit = told.entry(discriminant(&event)).or_insert_with(LogLimit::rare);
                        if let Some(others) = limit.take(std::time::Instant::now()) {
                            tracing::warn!(servers = ?shown, credentials, others, "NATS: {event}");
                        }
                    }
                    std::future::ready(())
                }
            })
            .retry_on_initial_connect();
        let options = with_credentials(options, &named, config)?;
        let client = options.connect(servers).await.context("cluster.nats")?;
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(Duration::from_secs(2));
        let replicas = config.replicas.into();
        Ok(Self { client, connected, jetstream, replicas, bucket: Mutex::default() })
    }

    async fn bucket(&self) -> Result<kv::Store, Failed> {
        let mut known = self.bucket.lock().await;
        if let Some(bucket) = &*known {
            return Ok(bucket.clone());
        }
        let config = kv::Config {
            bucket: BUCKET.to_owned(),
            description: "which node has which live stream".to_owned(),
            history: 1,
            num_replicas: self.replicas,
            storage: StorageType::Memory,
            limit_markers: Some(LASTS),
            ..kv::Config::default()
        };
        let made = self.jetstream.create_or_update_key_value(config).await.map_err(failed)?;
        *known = Some(made.clone());
        Ok(made)
    }

    /// Notes that the bucket may be lost, and has to be made again.
    async fn doubt(&self) {
        *self.bucket.lock().await = None;
    }
}

impl Bus for Nats {
    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    fn connected(&self) -> UnixMicros {
        UnixMicros(self.connected.load(Ordering::Relaxed))
    }

    fn inbox(&self) -> String {
        self.client.new_inbox()
    }

    fn subscribe(&self, subject: String) -> BoxFuture<'_, Result<Subscription, Failed>> {
        async move {
            let messages = self.client.subscribe(subject).await.map_err(failed)?;
            let incoming = |message: async_nats::Message| Incoming {
                is_unheard: message.status == Some(StatusCode::NO_RESPONDERS),
                payload: message.payload,
                reply: message.reply.map(|reply| reply.to_string()),
            };
            Ok(messages.map(incoming).boxed())
        }
        .boxed()
    }

    fn publish(
        &self,
        subject: String,
        reply: Option<String>,
        payload: Bytes,
    ) -> BoxFuture<'_, Result<(), Failed>> {
        async move {
            let client = &self.client;
            match reply {
                Some(reply) => client.publish_with_reply(subject, reply, payload).await,
                None => client.publish(subject, payload).await,
            }
            .map_err(failed)
        }
        .boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<Entry>, Failed>> {
        async move {
            let entry = match self.bucket().await?.entry(key).await {
                Ok(entry) => entry,
                Err(error) => {
                    self.doubt().await;
                    return Err(failed(error));
                }
            };
            Ok(entry.map(|entry| {
                let is_there = entry.operation == Operation::Put;
                let value = if is_there { entry.value } else { Bytes::new() };
                Entry { revision: entry.revision, value }
            }))
        }
        .boxed()
    }

    /// The library's own `update` has no time limit: with it, the lease of a node that died would last for ever.
    fn put<'a>(
        &'a self,
        key: &'a str,
        expected: u64,
        value: String,
    ) -> BoxFuture<'a, Result<u64, Unwritten>> {
        async move {
            self.bucket().await?;
            let mut headers = HeaderMap::new();
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(expected));
            headers.insert(NATS_MESSAGE_TTL, HeaderValue::from(LASTS.as_secs()));
            let subject = format!("$KV.{BUCKET}.{key}");
            let written = async {
                let sent = self.jetstream.publish_with_headers(subject, headers, value.into());
                sent.await?.await
            };
            match written.await {
                Ok(written) => Ok(written.sequence),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                    Err(Unwritten::Conflict)
                }
                Err(error) => {
                    // The bucket may not be there. When only nobody answers in time, it is.
                    if error.kind() != PublishErrorKind::TimedOut {
                        self.doubt().await;
                    }
                    Err(Unwritten::Failed(failed(error)))
                }
            }
        }
        .boxed()
    }
}
