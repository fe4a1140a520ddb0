use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::net::sockopt::set_socket_recv_buffer_size;
use tokio::net::{TcpSocket, TcpStream, UdpSocket, lookup_host};
use tokio::time::{Instant, timeout};

use crate::dtls::Identity;
use crate::playback::Track;
use crate::socket::Socket;
use crate::tls::{Stream, Tls, TlsError, Trust, Within};
use crate::url::Url;
use crate::{Asks, Barrier, Error, Kind, Micros, RequestTimes, Rtp, Stats};

/// Most bytes of one read from a socket. One buffer serves all viewers of a lane.
const SCRATCH: usize = 256 << 10;

/// How many buffers are kept for further playlists.
const SPARE_BUFFERS: usize = 16;
/// A buffer that has grown past this is not kept.
const SPARE_SIZE: usize = 256 << 10;

/// How many playlists are shared at once.
const SHARED: usize = 32;

/// The run's clock.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    /// Microseconds since 1970 at the start. Read once, so that a step of the system's clock
    /// is not taken for latency.
    unix: Micros,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        Self::start_ahead(0)
    }

    /// A clock that starts now, on a machine whose time of day is ahead by `ahead`. What it tells is
    /// the right time.
    pub fn start_ahead(ahead: Micros) -> Self {
        // Linux may run another program between two readings of clocks. So the quickest of some pairs counts.
        let readings = (0..8).map(|_| {
            let (start, wall) = (Instant::now(), SystemTime::now());
            (start.elapsed(), start, wall)
        });
        let (_, start, wall) = readings.min_by_key(|(took, ..)| *took).expect("eight pairs");
        let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start, unix: micros(unix).saturating_sub(ahead) }
    }

    /// Microseconds since the start.
    pub fn now(&self) -> Micros {
        micros(self.start.elapsed())
    }

    /// Converts a time of the run to microseconds since 1970.
    pub fn unix(&self, now: Micros) -> Micros {
        self.unix.saturating_add(now)
    }

    /// Converts a time of the run to an instant of the runtime.
    pub fn instant(&self, now: Micros) -> Instant {
        self.start + Duration::from_micros(now.max(0).unsigned_abs())
    }
}

fn micros(duration: Duration) -> Micros {
    Micros::try_from(duration.as_micros()).unwrap_or(Micros::MAX)
}

/// The rendition that a player asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendition {
    /// The highest bit rate that leaves a fifth of what the connection carries to spare.
    Auto,
    /// The highest bit rate.
    Highest,
    /// The lowest bit rate.
    Lowest,
    /// The bit rate with this index in rising order, or the highest if there are fewer.
    Index(usize),
}

/// How the viewers of a run behave.
#[derive(Debug, Clone)]
pub struct Options {
    /// Longest wait for a connection, an answer or further bytes.
    pub patience: Duration,
    /// How much media a player buffers before it starts or goes on. If the server has less ready,
    /// the player starts with less.
    pub buffer: Duration,
    /// How much media a player says that it buffers (RTMP's SetBufferLength). Servers may send this
    /// much of a file at once, and pace the rest.
    pub announce_buffer: Duration,
    /// How much media a player of finished media has ahead at most; `None` for all of it, as fast
    /// as it comes.
    pub ahead: Option<Duration>,
    /// Which rendition.
    pub rendition: Rendition,
    /// Whether players ask for parts, blocking reloads and chunks of segments that are still being
    /// made.
    pub low_latency: bool,
    /// Whether players ask for parts before they exist, by EXT-X-PRELOAD-HINT.
    pub hints: bool,
    /// Whether players of RTMP, FLV, MP4 and WHEP connect again where a connection is lost. Players of playlists,
    /// manifests and pushed streams always do.
    pub reconnect: bool,
    /// Which certificates are trusted where a URL asks for TLS.
    pub trust: Trust,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(10),
            buffer: Duration::from_millis(500),
            announce_buffer: Duration::from_secs(3),
            ahead: Some(Duration::from_secs(30)),
            rendition: Rendition::Highest,
            low_latency: true,
            hints: true,
            reconnect: false,
            trust: Trust::System,
        }
    }
}

/// Counters of all viewers of a lane. Other threads read them while the viewers run.
#[derive(Debug, Default)]
pub struct Totals {
    /// Viewers that have begun.
    pub joined: AtomicU64,
    /// Viewers that have left.
    pub left: AtomicU64,
    /// Viewers that have started to play.
    pub playing: AtomicU64,
    /// Viewers that left by an error.
    pub failed: AtomicU64,
    /// Media bytes.
    pub media_bytes: AtomicU64,
    /// Other bytes.
    pub overhead_bytes: AtomicU64,
    /// Bytes sent.
    pub sent_bytes: AtomicU64,
    /// Media received, in microseconds.
    pub received: AtomicU64,
    /// Stalls.
    pub stalls: AtomicU64,
    /// Requests.
    pub requests: AtomicU64,
    /// Troubles of any kind, including those that viewers got over.
    pub troubles: AtomicU64,
    /// Troubles whose cause is this machine.
    pub local: AtomicU64,
    /// Time from capture to arrival of the newest media, in microseconds.
    pub delivery: AtomicU64,
    /// How long the answered requests took.
    times: Mutex<RequestTimes>,
}

impl Totals {
    /// How long the answered requests took.
    pub fn request_times(&self) -> RequestTimes {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the viewers of one event loop share.
#[derive(Debug)]
pub struct Lane {
    /// The run's clock.
    pub clock: Clock,
    /// How viewers behave.
    pub options: Options,
    /// The counters.
    pub totals: Arc<Totals>,
    /// Local address of connections; `None` if the system picks it.
    source: Option<IpAddr>,
    scratch: RefCell<Box<[u8]>>,
    spare: RefCell<Vec<Vec<u8>>>,
    shared: RefCell<Vec<Rc<[u8]>>>,
    hosts: RefCell<HashMap<(String, u16), SocketAddr>>,
    nonce: Cell<u64>,
    /// Where viewers wait until all are connected, if they do.
    barrier: OnceCell<Arc<Barrier>>,
    /// Made when the first URL asks for TLS.
    tls: OnceCell<Result<Tls, TlsError>>,
    /// Made when the first viewer of WebRTC joins.
    dtls: OnceCell<Option<Identity>>,
    /// Serves all connections, in place of the host of a URL.
    #[cfg(test)]
    pub(crate) double: OnceCell<crate::double::Server>,
}

impl Lane {
    /// Makes a lane of a run.
    pub fn new(clock: Clock, options: Options, totals: Arc<Totals>) -> Rc<Self> {
        Self::from(clock, options, totals, None)
    }

    /// Makes a lane whose connections come from one address of this machine. Each address has its
    /// own ports.
    pub fn from(
        clock: Clock,
        options: Options,
        totals: Arc<Totals>,
        source: Option<IpAddr>,
    ) -> Rc<Self> {
        Rc::new(Self {
            clock,
            options,
            totals,
            source,
            scratch: RefCell::new(vec![0; SCRATCH].into()),
            spare: RefCell::default(),
            shared: RefCell::default(),
            hosts: RefCell::default(),
            nonce: Cell::new(clock.unix.unsigned_abs()),
            barrier: OnceCell::new(),
            tls: OnceCell::new(),
            dtls: OnceCell::new(),
            #[cfg(test)]
            double: OnceCell::new(),
        })
    }

    /// Lets viewers that are connected wait until the barrier opens. To be called before any viewer
    /// joins.
    pub fn hold_at(&self, barrier: Arc<Barrier>) {
        // Only the first barrier counts.
        let _ = self.barrier.set(barrier);
    }

    /// The buffer for one read and its parsing; not to be held across an await.
    pub(crate) fn scratch(&self) -> RefMut<'_, Box<[u8]>> {
        self.scratch.borrow_mut()
    }

    /// Takes an empty buffer, to be given back.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.spare.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a buffer back.
    pub(crate) fn give_back(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_BUFFERS && (1..=SPARE_SIZE).contains(&buffer.capacity()) {
            buffer.clear();
            spare.push(buffer);
        }
    }

    /// Shares bytes that many viewers keep, so that equal bytes are kept once.
    pub(crate) fn share(&self, bytes: Vec<u8>) -> Rc<[u8]> {
        let mut shared = self.shared.borrow_mut();
        if let Some(known) = shared.iter().find(|known| known[..] == bytes[..]) {
            return known.clone();
        }
        let new: Rc<[u8]> = bytes.into();
        if shared.len() >= SHARED {
            shared.remove(0);
        }
        shared.push(new.clone());
        new
    }

    /// A number that no other viewer of the lane gets.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce.set(self.nonce.get().wrapping_add(1));
        self.nonce.get()
    }

    /// Connects to a host; over TLS if `within` names a protocol.
    async fn connect(
        &self,
        host: &str,
        port: u16,
        within: Option<Within>,
    ) -> Result<Socket, Error> {
        #[cfg(test)]
        if let Some(double) = self.double.get() {
            return Ok(Socket::Double(Box::new(double.connect())));
        }
        let tcp = self.connect_tcp(host, port).await?;
        let Some(within) = within else { return Ok(Socket::Plain(tcp)) };
        let stream = match self.tls.get_or_init(|| Tls::new(&self.options.trust)) {
            Ok(tls) => Stream::open(tls, within, host, tcp, self.options.patience).await,
            Err(error) => Err(Error::new(Kind::Tls, error.to_string())),
        };
        stream
            .map(|stream| Socket::Tls(Box::new(stream)))
            .map_err(|error| error.at(format_args!("{host}:{port}")))
    }

    /// Opens a socket for datagrams, at the address of this machine on the way to a host.
    pub(crate) async fn open_udp(&self, host: &str, port: u16) -> Result<UdpSocket, Error> {
        let to = self.address(host, port).await?;
        let socket = open_udp(to, self.source).await;
        socket.map_err(|error| Error::io(&error, "opening a socket").at(to))
    }

    /// The certificate of this lane's viewers of WebRTC.
    pub(crate) fn identity(&self) -> Result<&Identity, Error> {
        let identity = self.dtls.get_or_init(Identity::new).as_ref();
        identity.ok_or_else(|| Error::new(Kind::Local, "no certificate for DTLS"))
    }

    /// The address of a host. The lane looks up each name once.
    async fn address(&self, host: &str, port: u16) -> Result<SocketAddr, Error> {
        let known = self.hosts.borrow().get(&(host.to_owned(), port)).copied();
        if let Some(address) = known {
            return Ok(address);
        }
        let place = || format!("{host}:{port}");
        let found = timeout(self.options.patience, lookup_host((host, port)))
            .await
            .map_err(|_| self.too_long("looking up the name").at(place()))?
            .map(|mut addresses| addresses.next());
        let address = found
            .ok()
            .flatten()
            .ok_or_else(|| Error::new(Kind::Resolve, "host without an address").at(place()))?;
        self.hosts.borrow_mut().insert((host.to_owned(), port), address);
        Ok(address)
    }

    fn too_long(&self, doing: &str) -> Error {
        let patience = self.options.patience;
        Error::new(Kind::Timeout, format!("{doing}: nothing for {patience:?}"))
    }

    /// Connects to a host.
    async fn connect_tcp(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let address = self.address(host, port).await?;
        let place = || format!("{host}:{port}");
        let socket = timeout(self.options.patience, open(address, self.source))
            .await
            .map_err(|_| self.too_long("connecting").at(place()))?
            .map_err(|error| Error::io(&error, "connecting").at(place()))?;
        // A socket that refuses this option does not work at all.
        socket.set_nodelay(true).map_err(|error| Error::io(&error, "connecting").at(place()))?;
        Ok(socket)
    }
}

/// Bytes that may wait in the kernel for a socket of datagrams. The usual 208 KiB are less than a second of video. Where
/// this process is not run for longer, what is lost would look as if the network had lost it. The kernel gives less if
/// `net.core.rmem_max` is less, and takes memory only for what waits.
const UNRECEIVED: usize = 4 << 20;

/// Opens a socket for datagrams; at the local address if one is given and of the same kind.
async fn open_udp(to: SocketAddr, source: Option<IpAddr>) -> io::Result<UdpSocket> {
    let source = source.filter(|source| source.is_ipv4() == to.is_ipv4());
    let own = match source {
        Some(source) => source,
        None => {
            // Connecting a socket for datagrams sends nothing. It only picks a way.
            let any: IpAddr = match to {
                SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            };
            let way = UdpSocket::bind((any, 0)).await?;
            way.connect(to).await?;
            way.local_addr()?.ip()
        }
    };
    let socket = UdpSocket::bind((own, 0)).await?;
    set_socket_recv_buffer_size(&socket, UNRECEIVED)?;
    Ok(socket)
}

/// Connects; from a local address if one is given and of the same kind.
async fn open(to: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(source) = source.filter(|source| source.is_ipv4() == to.is_ipv4()) else {
        return TcpStream::connect(to).await;
    };
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind((source, 0).into())?;
    socket.connect(to).await
}

/// One viewer. Its counters stay here when the future of its player is dropped.
#[derive(Debug)]
pub struct Viewer {
    /// Its lane.
    pub lane: Rc<Lane>,
    /// Whether it verifies what it receives.
    pub verify: bool,
    /// The access units that must come, if the viewer compares them.
    pub reference: Option<Arc<crate::verify::Reference>>,
    stats: RefCell<Stats>,
    /// Whether it has arrived at the lane's barrier.
    arrived: Cell<bool>,
    /// What the viewer has at the server, and must remove when it leaves.
    pub(crate) session: RefCell<Option<Box<Url>>>,
}

impl Viewer {
    /// Makes a viewer that joins now.
    pub fn join(
        lane: &Rc<Lane>,
        (id, batch): (u32, u32),
        verify: bool,
        reference: Option<Arc<crate::verify::Reference>>,
    ) -> Self {
        let threshold = micros(lane.options.buffer);
        let mut stats = Stats::new(id, batch, lane.clock.now(), threshold);
        stats.is_verified = verify;
        lane.totals.joined.fetch_add(1, Relaxed);
        Self {
            lane: lane.clone(),
            verify,
            reference,
            stats: RefCell::new(stats),
            arrived: Cell::new(false),
            session: RefCell::default(),
        }
    }

    /// Ends the viewer and returns its counters. `None`: its time was up.
    pub fn leave(self, outcome: Option<Result<(), Error>>) -> Stats {
        self.arrive();
        let now = self.now();
        let totals = self.lane.totals.clone();
        let mut stats = self.stats.into_inner();
        let now = stats.webrtc.as_deref().and_then(|webrtc| webrtc.left).unwrap_or(now);
        stats.left = now;
        stats.playback.finish(now);
        stats.end = match outcome {
            None => crate::End::Time,
            Some(Ok(())) => crate::End::Ended,
            Some(Err(error)) => {
                stats.troubles[error.kind as usize] += 1;
                totals.failed.fetch_add(1, Relaxed);
                totals.troubles.fetch_add(1, Relaxed);
                if error.kind == Kind::Local {
                    totals.local.fetch_add(1, Relaxed);
                }
                stats.error = Some(Box::new(error));
                crate::End::Error
            }
        };
        totals.left.fetch_add(1, Relaxed);
        stats
    }

    /// Connects to the server of a URL.
    pub(crate) async fn connect_http(&self, url: &Url) -> Result<Socket, Error> {
        let within = url.is_secure().then_some(Within::Http);
        self.connect(url.host(), url.port(), within).await
    }

    /// Connects to a host; over TLS if `within` names a protocol. If the lane has a barrier, the
    /// viewer then waits until it opens, and its time begins at that moment.
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        within: Option<Within>,
    ) -> Result<Socket, Error> {
        let socket = self.lane.connect(host, port, within).await;
        self.arrive();
        let socket = socket?;
        if let Some(barrier) = self.lane.barrier.get() {
            let opened = Box::pin(barrier.opened()).await;
            let mut stats = self.stats();
            stats.joined = stats.joined.max(opened);
        }
        Ok(socket)
    }

    /// Tells the lane's barrier, once, that it need not wait for this viewer any longer.
    pub(crate) fn arrive(&self) {
        if !self.arrived.replace(true)
            && let Some(barrier) = self.lane.barrier.get()
        {
            barrier.arrive();
        }
    }

    /// The time of the run.
    pub fn now(&self) -> Micros {
        self.lane.clock.now()
    }

    /// Its counters; not to be held across an await.
    pub fn stats(&self) -> RefMut<'_, Stats> {
        self.stats.borrow_mut()
    }

    /// Counts bytes of media.
    pub(crate) fn count_media(&self, bytes: usize) {
        let mut stats = self.stats();
        if stats.first_media.is_none() {
            stats.first_media = Some(self.now());
        }
        stats.media_bytes += bytes as u64;
        self.lane.totals.media_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Counts other bytes.
    pub(crate) fn count_overhead(&self, bytes: usize) {
        self.stats().overhead_bytes += bytes as u64;
        self.lane.totals.overhead_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Waits until a player of finished media has room for more.
    pub(crate) async fn wait_for_room(&self) {
        let Some(ahead) = self.lane.options.ahead else { return };
        let ahead = Micros::try_from(ahead.as_micros()).unwrap_or(Micros::MAX);
        let now = self.now();
        let over = {
            let mut stats = self.stats();
            stats.playback.advance(now);
            stats.playback.buffered(now) - ahead
        };
        if over > 0 && self.stats().playback.started().is_some() {
            tokio::time::sleep(Duration::from_micros(over.unsigned_abs())).await;
        }
    }

    /// Counts packets of media by RTP.
    pub(crate) fn count_rtp(&self, count: impl FnOnce(&mut Rtp)) {
        if let Some(webrtc) = self.stats().webrtc.as_deref_mut() {
            count(&mut webrtc.rtp);
        }
    }

    /// Counts bytes sent.
    pub(crate) fn count_sent(&self, bytes: usize) {
        self.stats().sent_bytes += bytes as u64;
        self.lane.totals.sent_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Records a request whose answer came whole, and its time in microseconds.
    pub(crate) fn answered(&self, asks: Asks, time: Micros) {
        if asks == Asks::Stream {
            return;
        }
        self.stats().times.record(asks, time);
        let times = &self.lane.totals.times;
        times.lock().unwrap_or_else(PoisonError::into_inner).record(asks, time);
    }

    /// Counts trouble that the viewer gets over.
    pub(crate) fn trouble(&self, kind: Kind) {
        self.stats().troubles[kind as usize] += 1;
        self.lane.totals.troubles.fetch_add(1, Relaxed);
        if kind == Kind::Local {
            self.lane.totals.local.fetch_add(1, Relaxed);
        }
    }

    /// Takes media of a track that arrived at `now`.
    pub(crate) fn media(&self, now: Micros, track: Track, from: Micros, to: Micros) {
        let totals = &self.lane.totals;
        let unix = self.lane.clock.unix(now);
        let mut stats = self.stats();
        let playback = &mut stats.playback;
        let before = (playback.received(), playback.stalls().0, playback.started().is_some());
        playback.media(now, unix, track, from, to);
        let received = playback.received() - before.0;
        totals.received.fetch_add(received.max(0).unsigned_abs(), Relaxed);
        totals.stalls.fetch_add((playback.stalls().0 - before.1).into(), Relaxed);
        if playback.started().is_some() && !before.2 {
            totals.playing.fetch_add(1, Relaxed);
        }
        if let Some(delivery) = playback.latencies().newest_delivery() {
            totals.delivery.store(delivery.max(0).unsigned_abs(), Relaxed);
        }
    }
}
