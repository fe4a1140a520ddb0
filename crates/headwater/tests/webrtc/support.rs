//! The server, requests of WHIP and WHEP, and aiortc.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use str0m::change::SdpAnswer;
use str0m::net::{DatagramRecv, Protocol, Receive, Transmit};
use str0m::{Candidate, Input, Rtc};
use testkit::http::Response;
use testkit::{Lateness, NO_ARGUMENTS, Program, Server};

/// The longest wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// What OBS and browsers offer, in short: H.264 and Opus, in one bundle. Nobody is behind it.
pub(crate) const OFFER: &str = "v=0\r\n\
    o=- 1 2 IN IP4 127.0.0.1\r\n\
    s=-\r\n\
    t=0 0\r\n\
    a=group:BUNDLE 0 1\r\n\
    a=fingerprint:sha-256 00:01:02:03:04:05:06:07:08:09:0A:0B:0C:0D:0E:0F:\
    10:11:12:13:14:15:16:17:18:19:1A:1B:1C:1D:1E:1F\r\n\
    a=ice-ufrag:peer\r\n\
    a=ice-pwd:0123456789012345678901\r\n\
    a=setup:actpass\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:0\r\n\
    a=sendrecv\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:111 opus/48000/2\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=mid:1\r\n\
    a=sendrecv\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:96 H264/90000\r\n\
    a=fmtp:96 profile-level-id=42e01f;packetization-mode=1;level-asymmetry-allowed=1\r\n";

#[track_caller]
pub(crate) fn server(configuration: &str) -> Server {
    let binary = env!("CARGO_BIN_EXE_headwater");
    // Beside a busy loop, an ffmpeg that yields would get no processor time.
    let (others, ladder) = configuration.split_once("[ladder]\n").unwrap_or((configuration, ""));
    let configuration = format!("{others}\n[ladder]\nnice = 0\n{ladder}");
    Server::configured(binary, &configuration, NO_ARGUMENTS)
}

#[track_caller]
pub(crate) fn ask(
    server: &Server,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    server.ask(method, path, headers, body, LIMIT)
}

#[track_caller]
pub(crate) fn post(server: &Server, path: &str, offer: &str) -> Response {
    ask(server, "POST", path, &[("Content-Type", "application/sdp")], offer.as_bytes())
}

/// The peer of a relay: the sources that sent STUN (RFC 7983 7). The source of the last datagram is at the end. A server
/// of another test may still send media to a peer that has gone, and this relay may have the same port now.
#[derive(Default)]
pub(crate) struct Peer(Vec<SocketAddr>);

impl Peer {
    /// Takes note of the source of a datagram. Returns whether that is the peer.
    pub(crate) fn has_sent(&mut self, source: SocketAddr, datagram: &[u8]) -> bool {
        let known = self.0.iter().position(|it| *it == source).map(|at| self.0.remove(at));
        let is_peer = known.is_some() || datagram.first().is_some_and(|first| *first < 4);
        self.0.extend(is_peer.then_some(source));
        is_peer
    }

    /// Where the peer's last datagram came from.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.0.last().copied()
    }
}

/// Relays the datagrams of one peer, and drops one in `loses` of those with media, both ways.
pub(crate) struct Relay {
    pub(crate) port: u16,
    dropped: Arc<AtomicUsize>,
}

/// Relays the datagrams of one peer. On the way to the peer there is a queue.
pub(crate) struct Bottleneck {
    pub(crate) port: u16,
    /// Bits per second that it carries. 0 is as many as come.
    rate: Arc<AtomicUsize>,
}

impl Bottleneck {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let (front, back) = (socket(), socket());
        back.connect(server).unwrap();
        let port = front.local_addr().unwrap().port();
        let rate = Arc::new(AtomicUsize::new(0));
        let (queue, queued) = mpsc::channel::<Vec<u8>>();
        let (to_peer, to_server) = (front.try_clone().unwrap(), back.try_clone().unwrap());
        let peer = Arc::new(Mutex::new(Peer::default()));
        // The threads end with the test's process.
        let known = Arc::clone(&peer);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, source)) = front.recv_from(&mut buffer) {
                if known.lock().unwrap().has_sent(source, &buffer[..length]) {
                    let _ = to_server.send(&buffer[..length]);
                }
            }
        });
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok(length) = back.recv(&mut buffer) {
                queue.send(buffer[..length].to_vec()).unwrap();
            }
        });
        let carries = Arc::clone(&rate);
        thread::spawn(move || {
            for datagram in queued {
                let rate = carries.load(Ordering::Relaxed);
                if let Some(micros) = (datagram.len() * 8_000_000).checked_div(rate) {
                    thread::sleep(Duration::from_micros(micros as u64));
                }
                let peer = peer.lock().unwrap().address();
                let _ = peer.map(|peer| to_peer.send_to(&datagram, peer));
            }
        });
        Self { port, rate }
    }

    /// Carries so many bits per second from here on. 0 is as many as come.
    pub(crate) fn carry(&self, rate: usize) {
        self.rate.store(rate, Ordering::Relaxed);
    }
}

impl Relay {
    pub(crate) fn new(server: SocketAddr, loses: usize) -> Self {
        let (front, back) = (socket(), socket());
        back.connect(server).unwrap();
        let port = front.local_addr().unwrap().port();
        let dropped = Arc::new(AtomicUsize::new(0));
        let peer = Arc::new(Mutex::new(Peer::default()));
        for (from, to, is_peer) in [(&front, &back, true), (&back, &front, false)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (peer, dropped) = (Arc::clone(&peer), Arc::clone(&dropped));
            // The threads end with the test's process.
            thread::spawn(move || {
                let (mut buffer, mut count) = ([0; 2048], 0);
                while let Ok((length, source)) = from.recv_from(&mut buffer) {
                    let datagram = &buffer[..length];
                    if is_peer && !peer.lock().unwrap().has_sent(source, datagram) {
                        continue;
                    }
                    // RTP and RTCP (RFC 7983 7). Their order decides, so each run drops others.
                    if (128..192).contains(&datagram[0]) {
                        count += 1;
                        if count % loses == 0 {
                            dropped.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                    }
                    // A peer that has gone takes nothing.
                    let _ = match peer.lock().unwrap().address() {
                        Some(peer) if !is_peer => to.send_to(datagram, peer),
                        _ => to.send(datagram),
                    };
                }
            });
        }
        Self { port, dropped }
    }

    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The sockets of a peer by str0m, which gets another one when it goes over to another network.
pub(crate) struct Sockets {
    /// Each with the address that str0m knows, the newest last.
    all: Vec<(UdpSocket, SocketAddr)>,
    /// How many datagrams came to each that are no STUN.
    pub(crate) media: Vec<usize>,
}

impl Sockets {
    pub(crate) fn new() -> Self {
        let mut sockets = Self { all: Vec::new(), media: Vec::new() };
        sockets.add();
        sockets
    }

    /// Adds one.
    pub(crate) fn add(&mut self) {
        let socket = socket();
        let local = socket.local_addr().unwrap();
        self.all.push((socket, local));
        self.media.push(0);
    }

    /// Puts another socket in the place of the newest, as a router does that gives a peer another port: str0m knows
    /// nothing of it.
    pub(crate) fn rebind(&mut self) {
        self.all.last_mut().unwrap().0 = socket();
    }

    /// Closes all but the newest.
    pub(crate) fn close_old(&mut self) {
        let last = self.all.len() - 1;
        self.all.drain(..last);
        self.media.drain(..last);
    }

    /// The newest address.
    pub(crate) fn local(&self) -> SocketAddr {
        self.all.last().unwrap().1
    }

    pub(crate) fn send(&self, datagram: &Transmit) {
        if let Some((socket, _)) = self.all.iter().find(|(_, local)| *local == datagram.source) {
            // One of the server's addresses may be out of reach.
            let _ = socket.send_to(&datagram.contents, datagram.destination);
        }
    }

    /// Waits for a datagram. Returns it with where it came from and where it came to.
    pub(crate) fn receive(&mut self, wait: Duration) -> Option<(Vec<u8>, SocketAddr, SocketAddr)> {
        let (last, mut buffer) = (self.all.len() - 1, [0; 2048]);
        for (index, (socket, local)) in self.all.iter().enumerate() {
            socket.set_nonblocking(index < last).unwrap();
            let wait = if last == 0 { wait } else { wait.min(Duration::from_millis(5)) };
            socket.set_read_timeout(Some(wait)).unwrap();
            if let Ok((length, source)) = socket.recv_from(&mut buffer) {
                self.media[index] += usize::from(buffer[0] >= 20);
                return Some((buffer[..length].to_vec(), source, *local));
            }
        }
        None
    }
}

/// What a datagram, or the time that passes, is to str0m.
pub(crate) fn input(came: Option<&(Vec<u8>, SocketAddr, SocketAddr)>) -> Input<'_> {
    let Some((datagram, source, destination)) = came else { return Input::Timeout(Instant::now()) };
    let contents = DatagramRecv::try_from(datagram.as_slice()).unwrap();
    let (source, destination) = (*source, *destination);
    Input::Receive(Instant::now(), Receive { proto: Protocol::Udp, source, destination, contents })
}

/// Sends a fragment of SDP to a session, with this `If-Match`.
#[track_caller]
pub(crate) fn patch(server: &Server, session: &str, tag: Option<&str>, body: &str) -> Response {
    let kind = ("Content-Type", "application/trickle-ice-sdpfrag");
    let headers: Vec<_> =
        [Some(kind), tag.map(|tag| ("If-Match", tag))].into_iter().flatten().collect();
    ask(server, "PATCH", session, &headers, body.as_bytes())
}

/// The value of a line of SDP.
#[track_caller]
pub(crate) fn value<'a>(sdp: &'a str, name: &str) -> &'a str {
    let line = sdp.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name}: {sdp}"))
}

/// Restarts ICE of a peer by str0m, which has the candidate `local` alone after that, and knows `port` in the place of
/// the server's. All that the first answer says besides stays.
#[track_caller]
pub(crate) fn restart(
    server: &Server,
    rtc: &mut Rtc,
    (session, answer): (&str, &str),
    local: SocketAddr,
    port: u16,
) {
    let mut sdp = rtc.sdp_api();
    let own = sdp.ice_restart(false);
    let (_, pending) = sdp.apply().unwrap();
    let body = format!("a=ice-ufrag:{}\r\na=ice-pwd:{}\r\n", own.ufrag, own.pass);
    let told = patch(server, session, Some("*"), &body);
    assert_eq!(told.status(), 200, "{}", told.text());
    let mut lines = Vec::new();
    for line in answer.lines().filter(|line| !line.starts_with("a=candidate:")) {
        match line.split_once(':') {
            Some((name @ "a=ice-ufrag", _)) => {
                lines.push(format!("{name}:{}", value(told.text(), name)));
            }
            Some((name @ "a=ice-pwd", _)) => {
                lines.push(format!("{name}:{}", value(told.text(), name)));
                let candidates = told.text().lines().filter(|it| it.starts_with("a=candidate:"));
                lines.extend(candidates.map(str::to_owned));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    let candidate = |port: u16| format!(" {port} typ host");
    let own = candidate(server.webrtc.unwrap().port());
    let answer = lines.join("\r\n").replace(&own, &candidate(port)) + "\r\n";
    let answer = SdpAnswer::from_sdp_string(&answer).unwrap();
    rtc.sdp_api().accept_answer(pending, answer).unwrap();
    rtc.add_local_candidate(Candidate::host(local, "udp").unwrap());
}

/// A socket that holds as much as Linux grants: 416 KiB at least, half of which it would hold by default. What comes
/// waits there where the test's process is not run for a while.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    SockRef::from(&socket).set_recv_buffer_size(http::net::UNRECEIVED).unwrap();
    socket
}

/// Makes a clip with so many pictures a second, without B-frames, and Opus: some 12 packets of video and 25 of audio a
/// second. Those of 6 s fit into a socket's buffer where Linux does not run a process for so long, and they are fewer
/// than the 100 packets that str0m can ask for again.
#[track_caller]
pub(crate) fn small_clip(folder: &Path, rate: u32, seconds: u32) -> PathBuf {
    let clip = folder.join("small.mp4");
    let picture = format!("testsrc2=s=320x180:r={rate}:d={seconds}");
    let sound = format!("sine=frequency=440:sample_rate=48000:duration={seconds}");
    let encode = format!(
        "-c:v libx264 -preset ultrafast -bf 0 -g {} -b:v 60k -pix_fmt yuv420p \
         -c:a libopus -b:a 16k -frame_duration 40",
        2 * rate
    );
    testkit::ffmpeg(
        ["-f", "lavfi", "-i", &picture, "-f", "lavfi", "-i", &sound]
            .into_iter()
            .chain(encode.split_ascii_whitespace())
            .chain([clip.to_str().unwrap()]),
    );
    clip
}

/// Bytes of its buffer that a socket of UDP of this machine holds, with what the kernel adds to each datagram.
pub(crate) fn unreceived(address: SocketAddr) -> usize {
    let port = format!(":{:04X}", address.port());
    let sockets = fs::read_to_string("/proc/net/udp").unwrap();
    let waiting = sockets.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        fields.next().filter(|local| local.ends_with(&port))?;
        usize::from_str_radix(fields.nth(2)?.split_once(':')?.1, 16).ok()
    });
    waiting.sum()
}

/// Runs a test with a server of its own. It may say what is wrong. It is run anew where Linux did not run the server or
/// the test itself for a while: nobody asks for packets in time then.
#[track_caller]
pub(crate) fn despite_stops(configuration: &str, test: impl Fn(&Server) -> Result<(), String>) {
    for run in 1.. {
        let server = server(configuration);
        let lateness = Lateness::of(&server);
        let Err(wrong) = test(&server) else { return };
        let stop = lateness.longest();
        assert!(stop > Duration::from_millis(500) && run < 3, "{wrong}; {run} runs, {stop:?}");
    }
}

/// A peer by aiortc, which does what peer.py says: `publish`, `see` or `hear`.
#[track_caller]
pub(crate) fn aiortc(what: &str, url: &str) -> Program {
    aiortc_by(what, url, &[])
}

/// The same, with the server's port and the port of a relay to it.
#[track_caller]
pub(crate) fn aiortc_by(what: &str, url: &str, ports: &[u16]) -> Program {
    let ports = ports.iter().map(u16::to_string);
    Program::spawn(testkit::aiortc("peer.py").args([what, url]).args(ports))
}

/// The lines that a peer printed, as JSON.
#[track_caller]
pub(crate) fn said(peer: Program) -> Vec<serde_json::Value> {
    let finished = peer.wait(LIMIT);
    assert!(finished.status.success(), "{finished:?}");
    let text = String::from_utf8(finished.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a peer said of this kind of media.
#[track_caller]
pub(crate) fn find<'a>(said: &'a [serde_json::Value], kind: &str) -> &'a serde_json::Value {
    said.iter().find(|line| line["kind"] == kind).unwrap()
}
