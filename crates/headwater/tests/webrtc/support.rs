//! The server, requests of WHIP and WHEP, and aiortc.

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use testkit::http::{Client, Response};
use testkit::{NO_ARGUMENTS, Program, Server};

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
    let mut client = Client::connect(server.http, LIMIT).unwrap();
    client.send(method, path, headers, body).unwrap();
    client.receive().unwrap()
}

#[track_caller]
pub(crate) fn post(server: &Server, path: &str, offer: &str) -> Response {
    ask(server, "POST", path, &[("Content-Type", "application/sdp")], offer.as_bytes())
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
        let peer = Arc::new(Mutex::new(None));
        // The threads end with the test's process.
        let known = Arc::clone(&peer);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, source)) = front.recv_from(&mut buffer) {
                *known.lock().unwrap() = Some(source);
                let _ = to_server.send(&buffer[..length]);
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
                let peer = *peer.lock().unwrap();
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
        let peer = Arc::new(Mutex::new(None));
        for (from, to, is_peer) in [(&front, &back, true), (&back, &front, false)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let (peer, dropped) = (Arc::clone(&peer), Arc::clone(&dropped));
            // The threads end with the test's process.
            thread::spawn(move || {
                let (mut buffer, mut count) = ([0; 2048], 0);
                while let Ok((length, source)) = from.recv_from(&mut buffer) {
                    let datagram = &buffer[..length];
                    if is_peer {
                        *peer.lock().unwrap() = Some(source);
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
                    let _ = match *peer.lock().unwrap() {
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

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
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
    Program::spawn(python("peer.py").args([what, url]).args(ports))
}

/// A script of this folder, to run with aiortc.
#[track_caller]
pub(crate) fn python(script: &str) -> Command {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = root.join("target/aiortc/bin/python");
    assert!(python.is_file(), "no aiortc: scripts/aiortc.sh installs it");
    let mut command = Command::new(python);
    command.arg(root.join("crates/headwater/tests/webrtc").join(script));
    command
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
