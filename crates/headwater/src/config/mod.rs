//! Configuration: every option, its default and its bounds.
//!
//! `config/headwater.toml` documents each option. A test checks that this file equals the defaults
//! here. The command line overrides the file. Then [`Config::validate`] checks the result as a
//! whole.

mod access;
mod acme;
mod error;
mod ladder;
mod store;
mod units;
mod validate;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

pub use self::access::{Access, Jwt, OnFailure, Rule, Webhook};
pub(crate) use self::access::{is_url, jwt_keys, signing_key};
pub use self::acme::Acme;
pub use self::store::Store;
pub use error::Error;
use http::Credentials;
use http::net::PerAddress;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
pub use ladder::{Ladder, Rung, Sandbox};
use protocol::push::abr;
use serde::{Deserialize, Serialize};
pub use units::{Bitrate, Factor, ParseError, Size, Time};

use crate::log;
use crate::pace::{Pace, Plan};

/// All options. A file gives only those that differ from [`Config::default`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Event loops; 0 is one for each core.
    pub workers: usize,
    /// The HTTP listener.
    pub http: Http,
    /// The RTMP listener.
    pub rtmp: Rtmp,
    /// WebRTC: WHIP and WHEP.
    pub webrtc: WebRtc,
    /// Push over WebSocket.
    pub push: Push,
    /// How live streams are cut, held in memory and delivered.
    pub live: Live,
    /// Renditions of live streams that the origin makes.
    pub ladder: Ladder,
    /// Files from disk.
    pub vod: Vod,
    /// Other nodes.
    pub cluster: Cluster,
    /// Who may publish, play and observe.
    pub access: Access,
    /// Pages and API.
    pub control: Control,
    /// Who is told of events.
    pub events: Events,
    /// Shutting down.
    pub drain: Drain,
    /// The log.
    pub log: Log,
    /// Where traces go.
    pub traces: Traces,
}

/// `[http]`: the listener that serves viewers, the pages and the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// Address to bind; port 0 takes any free one.
    pub listen: SocketAddr,
    /// A request's head must be complete after this time, or the answer is 408.
    pub head_timeout: Time,
    /// A connection without a request is closed after this time.
    pub idle_timeout: Time,
    /// A viewer that accepts no byte for this time is disconnected. This includes RTMP players.
    pub send_timeout: Time,
    /// Connections at once; 0 is no limit.
    pub max_connections: usize,
    /// Connections at once from one address (IPv6: one /64 network); 0 is no limit.
    pub max_connections_per_address: usize,
    /// Viewers at once of one address (IPv6: one /64 network) that are told apart by what their players
    /// say (CMCD), and players of HLS and DASH that are sessions; 0 is no limit.
    pub max_sessions_per_address: usize,
    /// Networks whose addresses are exempt from these limits, both here and for RTMP.
    pub unlimited_networks: Vec<IpNet>,
    /// `Access-Control-Allow-Origin` of media and playlists; empty sends none.
    pub cors_origin: String,
    /// The HTTPS listener.
    pub tls: Tls,
}

/// `[http.tls]`: a second listener, for HTTP/2 and HTTP/1.1 over TLS. It exists only if a
/// certificate or domains are configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Address to bind; port 0 takes any free one.
    pub listen: SocketAddr,
    /// PEM file with the server's certificate and the intermediate certificates up to an authority.
    pub certificate: PathBuf,
    /// PEM file with the certificate's private key.
    pub key: PathBuf,
    /// Names for which the server gets and renews a certificate by itself, instead of reading files.
    pub domains: Vec<String>,
    /// The authority that it gets it from.
    pub acme: Acme,
}

/// `[rtmp]`: the listener for publishers and RTMP players.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rtmp {
    /// Address to bind; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Publishers at once; 0 is no limit.
    pub max_publishers: usize,
    /// Players at once; 0 is no limit.
    pub max_players: usize,
    /// Connections at once from one address (IPv6: one /64 network); 0 is no limit.
    pub max_connections_per_address: usize,
    /// A peer must begin to publish or play within this time.
    pub setup_timeout: Time,
    /// A player that is paused, or at the end of what it plays, is disconnected after this time.
    pub pause_timeout: Time,
    /// Parts of a live stream that arrive within this time go to its players in one write. With 0,
    /// each part is sent as it arrives.
    pub flush_interval: Time,
    /// RTMPS.
    pub tls: RtmpTls,
}

/// `[rtmp.tls]`: a second listener, for RTMP over TLS, with the certificate of `[http.tls]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RtmpTls {
    /// Whether there is this listener.
    pub enabled: bool,
    /// Address to bind; port 0 takes any free one.
    pub listen: SocketAddr,
}

/// `[webrtc]`: publishing by WHIP and playing by WHEP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebRtc {
    /// Whether there is WebRTC at all.
    pub enabled: bool,
    /// Address to bind for datagrams; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Whether peers may connect to that address by TCP.
    pub tcp: bool,
    /// Further addresses of this machine, as peers see them, that peers are told.
    pub addresses: Vec<IpAddr>,
    /// How long a publisher's packets wait for one that is missing.
    pub jitter: Time,
    /// Whether Opus is made of AAC, and H.264 without B-frames of H.264 that has them, while somebody
    /// watches.
    pub transcode: bool,
    /// Sessions at once, publishers and viewers together; 0 is no limit.
    pub max_sessions: usize,
    /// Sessions at once of one address (IPv6: one /64 network); 0 is no limit.
    pub max_sessions_per_address: usize,
}

/// `[push]`: live streams and files over WebSocket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Push {
    /// Chunks of a live stream that arrive within this time go to its viewers in one write, each as
    /// its own message. With 0, each chunk is sent as it arrives.
    pub flush_interval: Time,
    /// Time between pings to a viewer. A viewer that sends nothing for three times as long is
    /// disconnected.
    pub ping_interval: Time,
    /// The rule that chooses among the renditions of a live stream.
    pub rule: PushRule,
}

/// A rule that chooses the rendition of a viewer of a live stream ([`protocol::push::abr`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PushRule {
    /// [`abr::Evidence`].
    Evidence,
    /// [`abr::ThreeState`].
    ThreeState,
    /// [`abr::Throughput`].
    Throughput,
}

impl From<PushRule> for abr::AnyRule {
    fn from(rule: PushRule) -> Self {
        match rule {
            PushRule::Evidence => Self::Evidence(abr::Evidence::default()),
            PushRule::ThreeState => Self::ThreeState(abr::ThreeState::default()),
            PushRule::Throughput => Self::Throughput(abr::Throughput::default()),
        }
    }
}

/// `[live]`: how streams are cut and held in memory, and what a slow viewer may cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Live {
    /// Target duration of a part (RFC 8216bis, 4.4.3.7). The shortest part is one frame.
    pub part_target: Time,
    /// Target duration of a segment. A segment ends only before a keyframe, so it may be longer.
    pub segment_target: Time,
    /// Longest segment of a publisher with regular keyframes (RFC 8216bis, 4.4.3.1). Whole seconds.
    pub target_duration: Time,
    /// How long segments of any other publisher wait for a keyframe. Whole seconds.
    pub keyframe_distance: Time,
    /// How much media the playlists list; at least 4 × `target_duration`.
    pub window: Time,
    /// How long a stream without a publisher waits for one to return.
    pub reconnect: Time,
    /// A publisher that is silent for this time may be replaced. After three times as long it is
    /// disconnected.
    pub silence: Time,
    /// After this time without media of a stream's publisher, those of its backup go on, and the other way round.
    pub backup_after: Time,
    /// A publisher that returns is in use again when it has been steady for this time: no pause between its media was
    /// longer than half of `backup_after`.
    pub backup_steady: Time,
    /// Whether renditions may be published from other addresses than that of the stream's first
    /// publisher.
    pub foreign_renditions: bool,
    /// Most bytes that all live streams may hold together; 0 is half of the machine's memory.
    pub memory: Size,
    /// Bytes of the window that may wait for one viewer of an endless delivery. A viewer with more
    /// is skipped to the newest keyframe.
    pub viewer_queue: Size,
    /// A viewer that stays behind for this time, although it was skipped ahead, is disconnected.
    pub viewer_patience: Time,
}

/// `[vod]`: files from disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Vod {
    /// The folder served below `/vod/`, relative to the working directory; it need not exist. Or the
    /// address of a store: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://CONTAINER/PREFIX`.
    pub root: PathBuf,
    /// Whether `GET` of a folder lists its content.
    pub listing: bool,
    /// Target duration of the segments of a file that is packaged on the fly.
    pub segment_target: Time,
    /// Memory for the indexes of packaged files, in bytes.
    pub index_memory: Size,
    /// The pace of a file sent as one long response or push, unless its URL names another.
    pub pace: Pace,
    /// How much media [`Pace::Burst`] sends without waiting.
    pub burst: Time,
    /// How fast [`Pace::Burst`] sends after that: a multiple of playback speed.
    pub rate: Factor,
    /// Memory for the blocks of files made for RTMP players, in bytes.
    pub segment_memory: Size,
    /// The store, if `root` is the address of one.
    pub store: Store,
}

/// `[cluster]`: other nodes that share their live streams with this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Addresses of NATS servers with JetStream; without any, there is no cluster.
    pub nats: Vec<String>,
    /// The name of this node, which no other has; empty for the name of the machine.
    pub node: String,
    /// Where viewers reach this node, as a URL without a path; empty to get none from `/route/`.
    pub advertise: String,
    /// Where this node is. `/route/…?zone=` prefers nodes of a zone.
    pub zone: String,
    /// On how many further nodes each stream is copied, whether or not anybody watches there. The same on all nodes.
    pub copies: u8,
    /// On how many of the servers what the nodes agree on is kept.
    pub replicas: u8,
    /// A file with the credentials of NATS, or empty.
    pub credentials: PathBuf,
}

/// `[control]`: the pages, and the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// Address of a listener of its own for the dashboard, the API and the metrics; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Names under which operators reach that listener, if it is at a loopback address and a proxy is in front of it.
    pub hosts: Vec<String>,
    /// Networks whose addresses may administer. Only they see the addresses of publishers and viewers, and end
    /// sessions. They also have the dashboard, the API and the metrics on the public listeners.
    pub admin: Vec<IpNet>,
    /// Which sites may show the player in a frame: `*` for all, origins separated by blanks, or
    /// empty for none.
    pub embed: String,
}

/// `[events]`: a server that is told what happens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Its http or https URL; empty means there is none.
    pub webhook: String,
    /// It must answer within this time.
    pub timeout: Time,
}

/// `[drain]`: shutting down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// How long open responses may go on after SIGTERM.
    pub timeout: Time,
}

/// `[log]`: what goes to standard error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// How lines are written.
    pub format: log::Format,
}

/// `[traces]`: a collector of OpenTelemetry that is told how long publishers and viewers wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traces {
    /// Its http or https URL, to which `/v1/traces` is added; empty means there is none.
    pub endpoint: String,
    /// The share of viewers and their requests that is traced.
    pub sample: Factor,
}

impl Config {
    /// Returns the defaults, overridden by the file at `path` if one is given.
    ///
    /// # Errors
    /// The file cannot be read, is not TOML, has an unknown key or a bad value; see [`Error`].
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        Self::read(path, Self::parse)
    }

    /// The same as [`Self::load`], for a machine that may lack the files, programs and features of the kernel that the
    /// options name: these are not looked at.
    ///
    /// # Errors
    /// The same as those of [`Self::load`], except for what the machine lacks.
    pub fn load_for_any_machine(path: Option<&Path>) -> Result<Self, Error> {
        Self::read(path, |text, path| Self::parse_and(text, path, validate::options))
    }

    fn read(
        path: Option<&Path>,
        parse: impl FnOnce(&str, &Path) -> Result<Self, Error>,
    ) -> Result<Self, Error> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
        parse(&text, path)
    }

    /// Parses `text`, the content of the file at `path`. `path` is used in errors only.
    ///
    /// # Errors
    /// `text` is not TOML, has an unknown key or a bad value; see [`Error`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, Error> {
        Self::parse_and(text, path, validate::check)
    }

    fn parse_and(
        text: &str,
        path: &Path,
        check: fn(&Self) -> Result<(), validate::Found>,
    ) -> Result<Self, Error> {
        let config: Self =
            toml::from_str(text).map_err(|source| error::refused(text, path, &source))?;
        check(&config).map_err(|found| error::located(text, path, found))?;
        Ok(config)
    }

    /// Checks that every option is within its bounds and agrees with the others, and that the
    /// certificate and key can be used. For a configuration that the command line changed after it
    /// was read.
    ///
    /// # Errors
    /// The first option that fails, by its key.
    pub fn validate(&self) -> Result<(), Error> {
        validate::check(self).map_err(Error::from)
    }

    /// Writes all options as a file would give them.
    ///
    /// # Errors
    /// `vod.root` is not Unicode, which TOML cannot hold.
    pub fn to_toml(&self) -> Result<String, Error> {
        toml::to_string(self).map_err(|source| Error::Unwritable { message: source.to_string() })
    }
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: any_address(8080),
            head_timeout: Time::from_secs(10),
            idle_timeout: Time::from_secs(60),
            send_timeout: Time::from_secs(30),
            max_connections: 16_000,
            max_connections_per_address: 1_000,
            max_sessions_per_address: 200,
            unlimited_networks: loopback(),
            cors_origin: "*".to_owned(),
            tls: Tls::default(),
        }
    }
}

impl Http {
    /// Makes a limit by address, for HTTP or for RTMP.
    pub(crate) fn per_address(&self, max: usize) -> Option<PerAddress> {
        let max = NonZeroUsize::new(max)?;
        Some(PerAddress { max, except: self.unlimited_networks.clone() })
    }
}

impl Tls {
    /// The certificate and key, if either is configured.
    pub fn credentials(&self) -> Option<Credentials> {
        let is_asked = !self.certificate.as_os_str().is_empty() || !self.key.as_os_str().is_empty();
        is_asked
            .then(|| Credentials { certificate: self.certificate.clone(), key: self.key.clone() })
    }

    /// Whether there is this listener.
    pub fn is_enabled(&self) -> bool {
        !self.domains.is_empty() || self.credentials().is_some()
    }
}

impl Default for Tls {
    fn default() -> Self {
        Self {
            listen: any_address(8443),
            certificate: PathBuf::new(),
            key: PathBuf::new(),
            domains: Vec::new(),
            acme: Acme::default(),
        }
    }
}

impl Default for Rtmp {
    fn default() -> Self {
        Self {
            listen: any_address(1935),
            max_publishers: 10_000,
            max_players: 4_000,
            max_connections_per_address: 1_000,
            setup_timeout: Time::from_secs(10),
            pause_timeout: Time::from_secs(300),
            flush_interval: Time::from_millis(100),
            tls: RtmpTls::default(),
        }
    }
}

impl Default for RtmpTls {
    fn default() -> Self {
        Self { enabled: false, listen: any_address(1936) }
    }
}

impl WebRtc {
    /// Whether the port is the one that it has if nobody configures another.
    pub fn is_by_default(&self) -> bool {
        self.listen == Self::default().listen
    }

    /// Whether ffmpeg may run for viewers.
    pub fn transcodes(&self) -> bool {
        self.enabled && self.transcode
    }
}

impl Default for WebRtc {
    fn default() -> Self {
        Self {
            enabled: true,
            listen: any_address(8189),
            tcp: true,
            addresses: Vec::new(),
            jitter: Time::from_millis(200),
            transcode: true,
            max_sessions: 4_000,
            max_sessions_per_address: 1_000,
        }
    }
}

impl Default for Push {
    fn default() -> Self {
        Self {
            flush_interval: Time::from_millis(0),
            ping_interval: Time::from_secs(9),
            rule: PushRule::Evidence,
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self {
            part_target: Time::from_millis(200),
            segment_target: Time::from_secs(2),
            target_duration: Time::from_secs(4),
            keyframe_distance: Time::from_secs(10),
            window: Time::from_secs(30),
            reconnect: Time::from_secs(30),
            silence: Time::from_secs(10),
            backup_after: Time::from_secs(1),
            backup_steady: Time::from_secs(3),
            foreign_renditions: false,
            memory: Size::default(),
            viewer_queue: Size::from_mib(4),
            viewer_patience: Time::from_secs(10),
        }
    }
}

impl Vod {
    /// The pace for a viewer that asks for `asked`, or for none.
    pub fn plan(&self, asked: Option<Pace>) -> Plan {
        Plan {
            pace: asked.unwrap_or(self.pace),
            burst: self.burst.into(),
            rate: self.rate.as_f64(),
        }
    }
}

impl Default for Vod {
    fn default() -> Self {
        Self {
            root: PathBuf::from("./media"),
            listing: false,
            segment_target: Time::from_secs(2),
            index_memory: Size::from_mib(64),
            pace: Pace::Burst,
            burst: Time::from_secs(10),
            rate: Factor::from_thousandths(1250),
            segment_memory: Size::from_mib(64),
            store: Store::default(),
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            nats: Vec::new(),
            node: String::new(),
            advertise: String::new(),
            zone: String::new(),
            copies: 0,
            replicas: 1,
            credentials: PathBuf::new(),
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        let loopback = [
            IpNet::new_assert(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8),
            IpNet::new_assert(IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
        ];
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);
        Self { listen, hosts: Vec::new(), admin: loopback.into(), embed: "*".to_owned() }
    }
}

impl Control {
    /// Whether the address is the one that it has if nobody configures another.
    pub fn is_by_default(&self) -> bool {
        self.listen == Self::default().listen
    }
}

impl Default for Events {
    fn default() -> Self {
        Self { webhook: String::new(), timeout: Time::from_secs(3) }
    }
}

impl Default for Traces {
    fn default() -> Self {
        Self { endpoint: String::new(), sample: Factor::from_thousandths(10) }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout: Time::from_secs(10) }
    }
}

/// The addresses of this machine. Its proxies and load generators use them.
fn loopback() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8);
    vec![v4.into(), Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128).into()]
}

fn any_address(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)
}
