//! `headwater serve`: binds the listeners, sweeps the streams, and ends in order.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::net::{LogLimit, Worker};
use tokio::signal::unix::{SignalKind, signal};

use crate::access::Door;
use crate::acme::Acme;
use crate::cluster::Cluster;
use crate::config::{self, Config};
use crate::deliver::Deliver;
use crate::events::webhook::Webhook;
use crate::ladder::Companions;
use crate::reload::File;
use crate::sampler::Sampler;
use crate::traces::Exporter;
use crate::{Origin, control, events, ingest, ladder, metrics, review, rtmp, webrtc};

/// Serves until SIGTERM or SIGINT, then drains. A second signal ends the process at once. At
/// SIGHUP, `[access]` is read again from `file`, and the certificate and key, if there are any.
///
/// When every listener is bound, prints `ready http=IP:PORT rtmp=IP:PORT` on standard output,
/// followed by ` https=IP:PORT` if there is a TLS listener, by ` webrtc=IP:PORT` if WebRTC is enabled, and by
/// ` rtmps=IP:PORT` if RTMP has a TLS listener. Where the control plane is not at its default address, ` control=IP:PORT`
/// follows.
///
/// # Errors
/// A listener cannot be bound, or a worker died.
pub async fn run(config: Config, file: Option<File>, demo: bool) -> anyhow::Result<()> {
    // Without this handler, SIGHUP would end the process, also one that comes while a large cache is read or a cluster is
    // joined. The signal waits here until the origin is ready. The listener with TLS looks at certificate and key by itself.
    let mut hang_up = signal(SignalKind::hangup())?;
    let origin = Arc::new(Origin::open(config)?);
    let config = &origin.config;
    if !config.cluster.nats.is_empty() {
        let (seats, title_viewers) = (Arc::clone(&origin.seats), Arc::clone(&origin.title_viewers));
        let cluster = Cluster::join(&config.cluster, seats, title_viewers, origin.clock).await?;
        let _ = origin.cluster.set(cluster);
    }
    let loops = http_config(config);
    let mut http = http::Server::bind(config.http.listen, loops.clone())
        .with_context(|| format!("http.listen = {}", config.http.listen))?;
    let tls = &config.http.tls;
    let listening = || format!("http.tls.listen = {}", tls.listen);
    let acme = match tls.credentials() {
        Some(credentials) => {
            http = http.with_tls(tls.listen, credentials).with_context(listening)?;
            None
        }
        None if tls.is_enabled() => {
            let acme = Acme::open(tls).context("http.tls.acme")?;
            let certificates = acme.certificates();
            http = http.with_certificates(tls.listen, certificates).with_context(listening)?;
            Some(acme)
        }
        None => None,
    };
    let mut rtmp = rtmp::Server::bind(Arc::clone(&origin), &loops)
        .with_context(|| format!("rtmp.listen = {}", config.rtmp.listen))?;
    if let Some(identity) = http.identity().filter(|_| config.rtmp.tls.enabled) {
        let listen = config.rtmp.tls.listen;
        rtmp = rtmp
            .with_tls(listen, identity, &loops)
            .with_context(|| format!("rtmp.tls.listen = {listen}"))?;
    }
    let slots = Arc::new(ladder::Slots::new(&config.ladder));
    let webrtc = match &config.webrtc {
        webrtc if webrtc.enabled => {
            let companions = Companions::new(Arc::clone(&origin), Arc::clone(&slots));
            match webrtc::Server::bind(Arc::clone(&origin), companions, loops.workers) {
                Ok(bound) => Some(Arc::new(bound)),
                // Nobody asked for this port. Another server of this machine may have it.
                Err(error) if webrtc.is_by_default() => {
                    tracing::warn!(listen = %webrtc.listen, %error, "no WebRTC");
                    None
                }
                Err(error) => {
                    let listen = webrtc.listen;
                    return Err(error).with_context(|| format!("webrtc.listen = {listen}"));
                }
            }
        }
        _ => None,
    };
    let operators = bind_control(&config.control, &loops)?;
    let webhook = Webhook::new(&config.events).context("events.webhook")?;
    let exporter = Exporter::start(&origin.traces, &config.traces, &config.cluster.node);
    let exporter = exporter.context("traces.endpoint")?;
    let (http_address, rtmp_address) = (http.address(), rtmp.address());
    let https = http.tls_address().map_or_else(String::new, |tls| format!(" https={tls}"));
    let rtmps = rtmp.tls_address().map_or_else(String::new, |tls| format!(" rtmps={tls}"));

    let webrtc_address = webrtc.as_ref().map(|webrtc| webrtc.address());
    let datagrams = webrtc_address.map_or_else(String::new, |at| format!(" webrtc={at}"));

    let control_address = operators.as_ref().map(http::Server::address);
    let elsewhere = control_address.filter(|_| !config.control.is_by_default());
    let elsewhere = elsewhere.map_or_else(String::new, |at| format!(" control={at}"));

    let counters = (http.counters(), operators.as_ref().map(http::Server::counters));
    tokio::spawn(sweep(Arc::clone(&origin), webrtc.clone(), counters));
    if let Some(webhook) = webhook {
        let events = Arc::clone(&origin.events);
        tokio::spawn(async move { webhook.run(&events).await });
    }
    origin.access.warn();
    let access = Arc::clone(&origin.access);
    tokio::spawn(async move { access.keep_fresh().await });
    let (access, sessions) = (Arc::clone(&origin.access), Arc::clone(&origin.sessions));
    tokio::spawn(async move { review::run(&access, &sessions).await });
    tokio::spawn(ladder::run(Arc::clone(&origin), slots));
    if demo {
        let origin = Arc::clone(&origin);
        tokio::spawn(async move {
            let clip = Bytes::from_static(ingest::clip::DEMO);
            if let Err(error) = ingest::clip::publish(origin, "demo", clip).await {
                tracing::error!(%error, "demo clip");
            }
        });
    }

    // This comes before `ready` is printed: a reader of that line may send a signal at once.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut stdout = io::stdout().lock();
    writeln!(
        stdout,
        "ready http={http_address} rtmp={rtmp_address}{https}{datagrams}{rtmps}{elsewhere}"
    )?;
    stdout.flush()?;
    drop(stdout);
    let https = http.tls_address().map(tracing::field::display);
    let webrtc_address = webrtc_address.map(tracing::field::display);
    let rtmps = rtmp.tls_address().map(tracing::field::display);
    let at = control_address.map(tracing::field::display);
    tracing::info!(
        http = %http_address, rtmp = %rtmp_address, https, webrtc = webrtc_address, rtmps,
        control = at, "ready"
    );

    let looks = match tls.credentials() {
        Some(_) => "looks at certificate and key",
        None => "no certificate files",
    };
    let access = Arc::clone(&origin.access);
    let hang_ups = async move {
        while hang_up.recv().await.is_some() {
            let read = match &file {
                Some(file) => file.reload(&access).await,
                None => Ok("no configuration file"),
            };
            match read {
                Ok(took) => tracing::info!("SIGHUP: {looks}, {took}"),
                Err(why) => tracing::error!("SIGHUP: {looks}; [access] stays as it was: {why}"),
            }
        }
        std::future::pending::<()>().await;
    };
    let mut asked = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let (mut begun, draining) = (origin.drains.subscribe(), Arc::clone(&origin));
    let signals = async move {
        asked().await;
        if let Some(cluster) = draining.cluster.get() {
            cluster.leave();
        }
        tracing::info!("draining");
        draining.drains.send_replace(true);
        asked().await;
        tracing::info!("stopped at once");
    };
    let metrics =
        metrics::router(Arc::clone(&origin), http.counters(), http.identity(), webrtc.clone());
    let control = control::Router::new(Arc::clone(&origin), webrtc.clone(), metrics);
    let (delivering, files) = (Arc::clone(&origin), Arc::clone(&origin));
    // Pages and media are there for operators, too: all that viewers have.
    let operators = serve_operators(operators, &origin, &control);
    let deliver = move |worker| {
        rtmp.serve(&worker);
        if let Some(webrtc) = &webrtc {
            webrtc.serve(&worker);
        }
        Deliver::new(Arc::clone(&delivering), worker.drain)
    };
    let mut public = control.at(Door::Public);
    if let Some(acme) = acme {
        public = public.merge(acme.router());
        tokio::spawn(acme.run());
    }
    let served = http.run(deliver, public, async move {
        let _ = begun.wait_for(|&begun| begun).await;
    });
    tokio::select! {
        served = served => served.context("http")?,
        served = operators => served.context("control")?,
        () = signals => {}
        () = hang_ups => {}
    }
    if let Some(exporter) = exporter {
        exporter.flush().await;
    }
    if let Some(store) = &files.store {
        store.flush();
    }
    Ok(())
}

/// Binds the listener of the control plane.
fn bind_control(
    control: &config::Control,
    loops: &http::Config,
) -> anyhow::Result<Option<http::Server>> {
    let loops = http::Config { workers: NonZeroUsize::MIN, ..loops.clone() };
    match http::Server::bind(control.listen, loops) {
        Ok(bound) => Ok(Some(bound)),
        // Nobody asked for this port. Another server of this machine may have it.
        Err(error) if control.is_by_default() => {
            tracing::warn!(listen = %control.listen, %error, "no listener for the control plane");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("control.listen = {}", control.listen)),
    }
}

/// Serves operators as long as the future is polled: they watch how the origin drains. With nothing to serve, waits for
/// ever.
async fn serve_operators(
    server: Option<http::Server>,
    origin: &Arc<Origin>,
    control: &control::Router,
) -> io::Result<()> {
    let Some(server) = server else { return std::future::pending().await };
    let delivering = Arc::clone(origin);
    let deliver = move |worker: Worker| Deliver::new(Arc::clone(&delivering), worker.drain);
    server.run(deliver, control.at(Door::Control), std::future::pending()).await
}

fn http_config(config: &Config) -> http::Config {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let http = &config.http;
    http::Config {
        workers: NonZeroUsize::new(config.workers).unwrap_or(cores),
        head_timeout: http.head_timeout.into(),
        idle_timeout: http.idle_timeout.into(),
        stall_timeout: http.send_timeout.into(),
        grace: config.drain.timeout.into(),
        max_connections: if http.max_connections == 0 { usize::MAX } else { http.max_connections },
        max_connections_per_address: http.per_address(http.max_connections_per_address),
        cors: (!http.cors_origin.is_empty()).then(|| http.cors_origin.clone()),
        ..http::Config::default()
    }
}

/// Time between two sweeps.
const SWEEP: Duration = Duration::from_secs(1);

/// Tells the streams about the time once a second. Streams whose publisher does not return end.
async fn sweep(
    origin: Arc<Origin>,
    webrtc: Option<Arc<webrtc::Server>>,
    (http, operators): (Arc<http::Counters>, Option<Arc<http::Counters>>),
) {
    let mut interval = tokio::time::interval(SWEEP);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut given_up, mut told) = (0, LogLimit::rare());
    let mut has_waited = false;
    let (mut seen, mut refused) = (events::streams::Seen::default(), 0);
    let mut sampler = Sampler::default();
    loop {
        let due = interval.tick().await;
        origin.follow_wall_clock();
        // Where the process stood still, all publishers seem silent until what they sent meanwhile is read.
        has_waited = !has_waited && due.elapsed() >= SWEEP;
        if has_waited {
            continue;
        }
        origin.registry.sweep(origin.now());
        seen.look(&origin.registry.streams())
            .into_iter()
            .for_each(|event| origin.events.tell(event));
        let totals = http.totals();
        let by_operators = operators.as_ref().map_or(0, |http| http.totals().bytes_sent);
        sampler.take(&origin, totals.bytes_sent + by_operators);
        let before = std::mem::replace(&mut refused, totals.refused);
        if refused > before {
            // The count does not tell them apart.
            let limit = "http.max_connections or http.max_connections_per_address";
            let refused = refused - before;
            origin.events.tell(events::Event::ViewerLimit { limit, refused });
        }
        let memory = origin.registry.memory();
        if memory.given_up > given_up && told.take(std::time::Instant::now()).is_some() {
            let (used, limit, segments) = (memory.used, memory.limit, memory.given_up - given_up);
            tracing::warn!(
                used,
                limit,
                segments,
                "live.memory is nearly used up: windows are shorter"
            );
            given_up = memory.given_up;
        }
        origin.title_viewers.sweep(origin.now());
        origin.sessions.sweep();
        if let Some(webrtc) = &webrtc {
            webrtc.sweep();
        }
    }
}
