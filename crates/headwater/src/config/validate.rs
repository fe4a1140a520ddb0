//! Checks that types cannot make: the bounds of options, and whether options agree.

use std::time::Duration;

use async_nats::ServerAddr;
use axum::http::Uri;
use http::CredentialsFile;
use rustls::pki_types::ServerName;

use super::ladder;
use super::{
    Access, Bitrate, Cluster, Config, Control, Factor, Http, Ladder, Rtmp, Rule, Sandbox, Size,
    Store, Time, Tls, Vod, WebRtc,
};

/// An option with a value that cannot be used.
pub(super) struct Found {
    /// The key at fault, then the keys that it disagrees with.
    pub(super) keys: Vec<&'static str>,
    /// What the option must be instead.
    pub(super) message: String,
}

const CERTIFICATE: &str = "http.tls.certificate";
const KEY: &str = "http.tls.key";

/// Peers try each address that they are told.
const MOST_ADDRESSES: usize = 16;

/// Finds the first option that cannot be used: by its own value, beside the others, or on this machine.
pub(super) fn check(config: &Config) -> Result<(), Found> {
    options(config)?;
    machine(config)
}

/// Finds the first option that names something which this machine lacks: a file, a program, a feature of the kernel.
fn machine(config: &Config) -> Result<(), Found> {
    let Config { http, webrtc, ladder, access, .. } = config;
    if let Some(credentials) = http.tls.credentials()
        && let Err(error) = credentials.check()
    {
        return match error.file {
            CredentialsFile::Certificate => refuse(&[CERTIFICATE], error.to_string()),
            CredentialsFile::Key => refuse(&[KEY], error.to_string()),
        };
    }
    let Access { signing_key, jwt, .. } = access;
    if !signing_key.as_os_str().is_empty()
        && let Err(error) = super::signing_key(signing_key)
    {
        return refuse(&["access.signing_key"], error);
    }
    if !jwt.keys.is_empty()
        && !super::is_url(&jwt.keys)
        && let Err(error) = super::jwt_keys(&jwt.keys)
    {
        return refuse(&["access.jwt.keys"], error);
    }
    // A missing program is found now, and not each time a stream is published.
    if ladder.enabled && ladder.program().is_none() {
        let path = ladder.ffmpeg.display();
        return refuse(&["ladder.ffmpeg"], format!("there is no program {path}"));
    }
    if (ladder.enabled || webrtc.transcodes()) && ladder.sandbox == Sandbox::Require {
        for (has, what) in [
            (crate::machine::has_landlock(), "Landlock"),
            (crate::machine::has_seccomp(), "seccomp"),
        ] {
            if !has {
                let message = format!("this kernel has no {what} to confine ffmpeg by");
                return refuse(&["ladder.sandbox"], message);
            }
        }
    }
    Ok(())
}

/// Finds the first option that is out of bounds or disagrees with another.
pub(super) fn options(config: &Config) -> Result<(), Found> {
    let Config {
        workers,
        http,
        rtmp,
        webrtc,
        push,
        live,
        ladder,
        vod,
        cluster,
        access,
        control,
        events,
        drain,
        log: _,
        traces,
    } = config;

    // No machine has more cores; a larger number is a typing error.
    within("workers", *workers, 0, 1024)?;

    let hour = Time::from_secs(3600);
    // With less time, a peer on a slow path could never answer in time.
    let least = Time::from_millis(100);
    within("http.head_timeout", http.head_timeout, least, hour)?;
    within("http.idle_timeout", http.idle_timeout, least, hour)?;
    within("http.send_timeout", http.send_timeout, least, hour)?;
    within("rtmp.setup_timeout", rtmp.setup_timeout, least, hour)?;
    within("rtmp.pause_timeout", rtmp.pause_timeout, least, Time::from_secs(24 * 3600))?;
    // Everything that waits goes out at once. More than a second of media would be a burst.
    let second = Time::from_secs(1);
    within("rtmp.flush_interval", rtmp.flush_interval, Time::default(), second)?;
    // Packets and bytes that wait have bounds of their own. A longer time is taken for a mistake.
    within("webrtc.jitter", webrtc.jitter, Time::default(), Time::from_secs(30))?;
    if webrtc.addresses.len() > MOST_ADDRESSES {
        return refuse(&["webrtc.addresses"], format!("at most {MOST_ADDRESSES}"));
    }
    within("push.flush_interval", push.flush_interval, Time::default(), second)?;
    within("push.ping_interval", push.ping_interval, least, hour)?;
    header_value("http.cors_origin", &http.cors_origin)?;
    addresses(http, rtmp, webrtc, control)?;
    if control.hosts.iter().any(|name| name.is_empty() || name.contains([':', '/'])) {
        let message = "must be names of hosts, without scheme and port".to_owned();
        return refuse(&["control.hosts"], message);
    }
    within("events.timeout", events.timeout, least, Time::from_secs(60))?;
    if !events.webhook.is_empty() && !super::is_url(&events.webhook) {
        let message = "must be an http or https URL".to_owned();
        return refuse(&["events.webhook"], message);
    }
    let (none, all) = (Factor::from_thousandths(0), Factor::from_thousandths(1000));
    within("traces.sample", traces.sample, none, all)?;
    if !traces.endpoint.is_empty() && !super::is_url(&traces.endpoint) {
        let message = "must be like http://127.0.0.1:4318".to_owned();
        return refuse(&["traces.endpoint"], message);
    }
    credentials(&http.tls)?;
    domains(&http.tls, vod)?;
    if rtmp.tls.enabled && !http.tls.is_enabled() {
        return refuse(
            &["rtmp.tls.enabled", "http.tls.certificate"],
            "needs http.tls.certificate and http.tls.key, or http.tls.domains".to_owned(),
        );
    }

    // The shortest part is one frame at 240 frames per second.
    within("live.part_target", live.part_target, Time::from_millis(4), hour)?;
    within("live.segment_target", live.segment_target, Time::from_millis(100), hour)?;
    within("live.target_duration", live.target_duration, Time::from_secs(1), hour)?;
    within("live.keyframe_distance", live.keyframe_distance, Time::default(), hour)?;
    within("live.window", live.window, Time::from_secs(1), Time::from_secs(6 * 3600))?;
    within("live.reconnect", live.reconnect, Time::default(), hour)?;
    within("live.silence", live.silence, Time::from_secs(1), hour)?;
    // Frames of a slow camera must not look like pauses.
    within("live.backup_after", live.backup_after, Time::from_millis(200), live.silence)?;
    within("live.backup_steady", live.backup_steady, Time::default(), hour)?;
    // With less memory, a single stream might have no room for its window.
    let least_memory = Size::from_mib(16);
    if live.memory != Size::default() {
        within("live.memory", live.memory, least_memory, Size::from_mib(1 << 20))?;
    }
    within("live.viewer_queue", live.viewer_queue, Size::from_kib(64), Size::from_mib(1024))?;
    within("live.viewer_patience", live.viewer_patience, least, hour)?;

    // EXT-X-TARGETDURATION is a decimal integer (RFC 8216bis, 4.4.3.1).
    for (key, value) in [
        ("live.target_duration", live.target_duration),
        ("live.keyframe_distance", live.keyframe_distance),
    ] {
        if value.0.subsec_nanos() != 0 {
            return refuse(&[key], format!("must be whole seconds, is {value}"));
        }
    }
    if live.part_target > live.segment_target {
        return refuse(
            &["live.part_target", "live.segment_target"],
            format!(
                "{} is longer than live.segment_target, {}",
                live.part_target, live.segment_target
            ),
        );
    }
    if live.segment_target > live.target_duration {
        return refuse(
            &["live.segment_target", "live.target_duration"],
            format!(
                "{} is longer than live.target_duration, {}",
                live.segment_target, live.target_duration
            ),
        );
    }
    // A playlist never lists less than three target durations (RFC 8216bis, 6.2.2), and players
    // start there (HOLD-BACK, 4.4.3.8). The fourth is for the segment that leaves the playlist
    // while players fetch it.
    let least = Time(live.target_duration.0.saturating_mul(4));
    if live.window < least {
        return refuse(
            &["live.window", "live.target_duration"],
            format!("{} is less than 4 × live.target_duration, {least}", live.window),
        );
    }

    self::ladder(ladder)?;

    if vod.root.as_os_str().is_empty() {
        return refuse(&["vod.root"], "must not be empty".to_owned());
    }
    if let Some(scheme) = vod.unknown_scheme() {
        let message = format!("must be a folder, or begin with s3, gs, az or file, not {scheme}");
        return refuse(&["vod.root"], message);
    }
    store(&vod.store)?;
    within("vod.segment_target", vod.segment_target, Time::from_millis(100), hour)?;
    let most = Size::from_mib(1 << 20);
    within("vod.index_memory", vod.index_memory, Size::from_mib(1), most)?;
    within("vod.burst", vod.burst, Time::default(), hour)?;
    // At less than playback speed, the player would stop again and again.
    let (least, fastest) = (Factor::from_thousandths(1000), Factor::from_thousandths(100_000));
    within("vod.rate", vod.rate, least, fastest)?;
    within("vod.segment_memory", vod.segment_memory, Size::from_mib(1), most)?;
    self::cluster(cluster)?;
    self::access(access)?;
    sources("control.embed", &control.embed)?;
    within("drain.timeout", drain.timeout, Time(Duration::ZERO), hour)
}

/// Checks what tells a node of the cluster from others.
fn cluster(cluster: &Cluster) -> Result<(), Found> {
    let mut user = None;
    for (number, address) in (1..).zip(&cluster.nats) {
        // An address may have a password, so none is told.
        let Ok(server) = address.parse::<ServerAddr>() else {
            let why = format!("number {number} must be an address such as nats://192.0.2.1:4222");
            return refuse(&["cluster.nats"], why);
        };
        let Some(name) = server.username() else { continue };
        let own = (name.to_owned(), server.password().map(str::to_owned));
        if own != *user.get_or_insert_with(|| own.clone()) {
            let why = format!("number {number} has another user than an address before it");
            return refuse(&["cluster.nats"], why);
        }
    }
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if cluster.node.len() > 128 || !cluster.node.chars().all(is_allowed) {
        return refuse(&["cluster.node"], "at most 128 of A-Z a-z 0-9 . _ -".to_owned());
    }
    let is_base = |url: Uri| url.scheme().is_some() && url.path() == "/" && url.query().is_none();
    if !cluster.advertise.is_empty() && !cluster.advertise.parse().is_ok_and(is_base) {
        return refuse(
            &["cluster.advertise"],
            "must be like https://edge-1.example.org:8443".to_owned(),
        );
    }
    if cluster.zone.len() > 128 {
        return refuse(&["cluster.zone"], "at most 128 characters".to_owned());
    }
    if cluster.copies > 8 {
        return refuse(&["cluster.copies"], "0 to 8".to_owned());
    }
    // JetStream has no other numbers.
    if ![1, 3, 5].contains(&cluster.replicas) {
        return refuse(&["cluster.replicas"], "1, 3 or 5".to_owned());
    }
    Ok(())
}

/// Checks that the webhook can be asked about credentials, and that rules are complete.
fn access(access: &Access) -> Result<(), Found> {
    let Access { publish_from: _, max_failures, signing_key: _, jwt, webhook, .. } = access;
    let Access { rtmp_challenge, rule: rules, .. } = access;
    within("access.max_failures", *max_failures, 0, 10_000)?;
    let hour = Time::from_secs(3600);
    within("access.jwt.leeway", jwt.leeway, Time::default(), hour)?;
    within("access.jwt.refresh", jwt.refresh, Time::from_secs(10), Time::from_secs(24 * 3600))?;
    within("access.webhook.timeout", webhook.timeout, Time::from_millis(100), Time::from_secs(60))?;
    within("access.webhook.cache", webhook.cache, Time::default(), hour)?;
    within("access.webhook.recheck", webhook.recheck, Time::default(), hour)?;
    if !webhook.url.is_empty() && !super::is_url(&webhook.url) {
        let message = "must be like https://example.org/hooks/access".to_owned();
        return refuse(&["access.webhook.url"], message);
    }
    for (number, rule) in (1..).zip(rules) {
        let wrong = match rule {
            Rule { actions, .. } if actions.is_empty() => "has no action",
            Rule { user: None, password: Some(_), .. } => "has a password and no user",
            Rule { user: Some(_), password: None, .. } => "has a user and no password",
            Rule { password: Some(_), key: Some(_), .. } => "has a password and a key",
            Rule { user: Some(user), .. } if user.is_empty() || user.contains(':') => {
                "has a user that is empty or has a colon, which HTTP cannot carry"
            }
            _ => continue,
        };
        return refuse(&["access.rule"], format!("number {number} {wrong}"));
    }
    let is_plain = |rule: &Rule| rule.password.as_ref().is_some_and(|it| it.plain().is_some());
    if *rtmp_challenge && !rules.iter().any(is_plain) {
        let message = "needs a rule with a user and a password in plain".to_owned();
        return refuse(&["access.rtmp_challenge", "access.rule"], message);
    }
    Ok(())
}

/// Checks that no two listeners share an address: each would get half of the connections.
fn addresses(http: &Http, rtmp: &Rtmp, webrtc: &WebRtc, control: &Control) -> Result<(), Found> {
    let with_tls = http.tls.is_enabled().then_some(("http.tls.listen", http.tls.listen));
    // If another listener has its default port, the server runs without WebRTC.
    let by_tcp = webrtc.enabled && webrtc.tcp && !webrtc.is_by_default();
    let by_tcp = by_tcp.then_some(("webrtc.listen", webrtc.listen));
    let rtmps = rtmp.tls.enabled.then_some(("rtmp.tls.listen", rtmp.tls.listen));
    let (plain, rtmp) = (Some(("http.listen", http.listen)), Some(("rtmp.listen", rtmp.listen)));
    // The same holds for the listener of the control plane.
    let control = (!control.is_by_default()).then_some(("control.listen", control.listen));
    let listeners = [plain, with_tls, rtmp, rtmps, by_tcp, control];
    let listeners: Vec<_> = listeners.into_iter().flatten().collect();
    for (i, (key, address)) in listeners.iter().enumerate() {
        let taken = listeners[..i].iter().find(|(_, other)| other == address && other.port() != 0);
        if let Some((by, _)) = taken {
            return refuse(&[key, by], format!("{address} is taken by {by}"));
        }
    }
    Ok(())
}

/// Checks that certificate and key are given both, or neither.
fn credentials(tls: &Tls) -> Result<(), Found> {
    let Some(credentials) = tls.credentials() else { return Ok(()) };
    for (this, other, path) in
        [(CERTIFICATE, KEY, &credentials.certificate), (KEY, CERTIFICATE, &credentials.key)]
    {
        if path.as_os_str().is_empty() {
            return refuse(&[this, other], format!("must be given where {other} is"));
        }
    }
    Ok(())
}

/// Most names that authorities put into one certificate.
const MOST_DOMAINS: usize = 100;

/// Checks that an authority can be asked for a certificate of the domains.
fn domains(tls: &Tls, vod: &Vod) -> Result<(), Found> {
    const DOMAINS: &str = "http.tls.domains";
    let Tls { domains, acme, .. } = tls;
    if domains.is_empty() {
        return Ok(());
    }
    for (file, path) in [("http.tls.certificate", &tls.certificate), ("http.tls.key", &tls.key)] {
        if !path.as_os_str().is_empty() {
            let message =
                format!("and {file} exclude each other: the certificate is one or the other");
            return refuse(&[DOMAINS, file], message);
        }
    }
    if domains.len() > MOST_DOMAINS {
        return refuse(&[DOMAINS], format!("at most {MOST_DOMAINS}"));
    }
    for (number, domain) in domains.iter().enumerate() {
        if domain.starts_with("*.") {
            let message = format!("{domain:?} needs DNS-01, which this server does not speak");
            return refuse(&[DOMAINS], message);
        }
        let name = ServerName::try_from(domain.as_str());
        if !matches!(name, Ok(ServerName::DnsName(_))) || domain.ends_with('.') {
            let message = format!("{domain:?} is not a name such as example.org");
            return refuse(&[DOMAINS], message);
        }
        if domains[..number].iter().any(|other| other.eq_ignore_ascii_case(domain)) {
            return refuse(&[DOMAINS], format!("{domain:?} is there twice"));
        }
    }
    // One address, without what a mailto URL could have beside it (RFC 8555 7.3).
    let is_address = |email: &str| {
        let plain = email.bytes().all(|b| b.is_ascii_graphic() && !b",?%<>".contains(&b));
        plain
            && email.split_once('@').is_some_and(|(who, host)| !who.is_empty() && !host.is_empty())
    };
    if !acme.email.is_empty() && !is_address(&acme.email) {
        let message = "must be an address such as admin@example.org".to_owned();
        return refuse(&["http.tls.acme.email"], message);
    }
    let is_directory = |url: Uri| {
        url.scheme_str() == Some("https") && url.host().is_some_and(|host| !host.is_empty())
    };
    if !acme.directory.parse().is_ok_and(is_directory) {
        let message = "must be like https://example.org/acme/directory".to_owned();
        return refuse(&["http.tls.acme.directory"], message);
    }
    if let Err(error) = acme.roots() {
        return refuse(&["http.tls.acme.ca_root"], error);
    }
    if acme.storage.as_os_str().is_empty() {
        return refuse(&["http.tls.acme.storage"], "must not be empty".to_owned());
    }
    let [storage, files] = [&acme.storage, vod.folder()].map(std::path::absolute);
    if storage.is_ok_and(|at| files.is_ok_and(|all| at.starts_with(all))) {
        let message = "is below vod.root, and so everybody would get the keys in it".to_owned();
        return refuse(&["http.tls.acme.storage", "vod.root"], message);
    }
    Ok(())
}

/// Bounds of the store's options.
fn store(store: &Store) -> Result<(), Found> {
    if store.cache.as_os_str().is_empty() {
        return refuse(&["vod.store.cache"], "must not be empty".to_owned());
    }
    // With less room, few viewers would fetch for each other what the others had just fetched.
    let (least, most) = (Size::from_mib(64), Size::from_mib(1 << 30));
    within("vod.store.cache_size", store.cache_size, least, most)?;
    let least = Time::from_millis(100);
    within("vod.store.revalidate", store.revalidate, least, Time::from_secs(3600))?;
    within("vod.store.timeout", store.timeout, least, Time::from_secs(60))?;
    within("vod.store.requests", store.requests, 1, 1024)?;
    within("vod.store.read_ahead", store.read_ahead, Size::default(), Size::from_mib(256))
}

/// Checks that x264 can make the renditions and that playlists can name them.
fn ladder(ladder: &Ladder) -> Result<(), Found> {
    const RUNGS: &str = "ladder.rungs";
    let Ladder { streams, keyframe_interval, threads, nice, rungs, preset, .. } = ladder;
    if !ladder::PRESETS.contains(&preset.as_str()) {
        let known = ladder::PRESETS.join(", ");
        return refuse(&["ladder.preset"], format!("must be one of {known}"));
    }
    let least = Time::from_millis(100);
    within("ladder.keyframe_interval", *keyframe_interval, least, Time::from_secs(3600))?;
    within("ladder.max_streams", ladder.max_streams, 0, 10_000)?;
    within("ladder.threads", *threads, 0, 256)?;
    within("ladder.nice", *nice, 0, 19)?;
    within("ladder.max_per_address", ladder.max_per_address, 0, 10_000)?;
    within("ladder.reserved", ladder.reserved, 0, 10_000)?;
    within("ladder.max_outside", ladder.max_outside, 0, 10_000)?;
    within("ladder.cores", ladder.cores, 0, 1024)?;
    // With less memory, ffmpeg does not even start.
    within("ladder.memory", ladder.memory, Size::from_mib(64), Size::from_mib(1 << 20))?;
    for (key, names) in [("ladder.streams", streams), ("ladder.reserved_for", &ladder.reserved_for)]
    {
        if let Some(bad) = names.iter().find(|pattern| !ladder::is_pattern(pattern)) {
            let message =
                format!("{bad:?} is not a stream's name, in which * may stand for anything");
            return refuse(&[key], message);
        }
    }
    if ladder.max_streams != 0 && ladder.reserved > ladder.max_streams {
        let message = format!("{} are more than ladder.max_streams", ladder.reserved);
        return refuse(&["ladder.reserved", "ladder.max_streams"], message);
    }
    if ladder.reserved > 0 && ladder.reserved_for.is_empty() {
        let message = "places are kept for no stream: ladder.reserved_for is empty".to_owned();
        return refuse(&["ladder.reserved", "ladder.reserved_for"], message);
    }
    if let Some(bad) = ladder.read.iter().find(|path| !path.has_root()) {
        let message = format!("{} does not begin with /", bad.display());
        return refuse(&["ladder.read"], message);
    }
    if rungs.is_empty() || rungs.len() > ladder::MOST_RUNGS {
        return refuse(&[RUNGS], format!("must be 1 to {}", ladder::MOST_RUNGS));
    }
    let (slowest, fastest) = (Bitrate::from_kbit(8), Bitrate::from_kbit(500_000));
    for (at, rung) in rungs.iter().enumerate() {
        let name = &rung.name;
        if !ladder::is_rung_name(name) {
            let message =
                format!("{name:?} is not a name: 1 to 32 of A-Z a-z 0-9 . _ -, unlike v0");
            return refuse(&[RUNGS], message);
        }
        if rungs[..at].iter().any(|other| other.name == *name) {
            return refuse(&[RUNGS], format!("two are called {name:?}"));
        }
        within(RUNGS, rung.width.min(rung.height), 16, 8192)?;
        within(RUNGS, rung.width.max(rung.height), 16, 8192)?;
        within(RUNGS, rung.bitrate, slowest, fastest)?;
    }
    Ok(())
}

fn refuse(keys: &[&'static str], message: String) -> Result<(), Found> {
    Err(Found { keys: keys.to_vec(), message })
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), Found> {
    if value < least || value > most {
        return refuse(&[key], format!("must be from {least} to {most}, is {value}"));
    }
    Ok(())
}

/// Checks that the value is a list of origins and nothing else. It goes into a content security
/// policy, where other text could change the policy.
fn sources(key: &'static str, value: &str) -> Result<(), Found> {
    let is_origin = |word: &str| {
        let rest = word.strip_prefix("https://").or_else(|| word.strip_prefix("http://"));
        rest.is_some_and(|host| {
            let known = |b: u8| b.is_ascii_alphanumeric() || b"-._:*[]".contains(&b);
            !host.is_empty() && host.bytes().all(known)
        })
    };
    if value == "*" || value.split(' ').all(is_origin) || value.is_empty() {
        return Ok(());
    }
    refuse(&[key], "must be \"*\", origins such as https://example.org, or empty".to_owned())
}

/// Checks that the value is a valid header value. It goes into the response head unchanged, where a
/// line break would end the header.
fn header_value(key: &'static str, value: &str) -> Result<(), Found> {
    if value.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    refuse(&[key], "must be visible ASCII without blanks".to_owned())
}
