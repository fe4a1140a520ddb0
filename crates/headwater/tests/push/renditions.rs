//! The link's capacity decides which rendition of a title a viewer gets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use testkit::push::{Client, Frame};
use testkit::{track_of, uninterrupted};

use crate::titles::{ffmpeg, segments, server};

/// Time in which a link passes on one piece.
const STEP: Duration = Duration::from_millis(20);

/// A link to `server` for one connection, and its bytes a second towards the viewer. A late thread
/// does not make the link narrower: the bytes that waited for the thread pass as soon as it runs.
pub(crate) fn link(server: SocketAddr, rate: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let rate = Arc::new(AtomicUsize::new(rate));
    let carries = Arc::clone(&rate);
    thread::spawn(move || {
        let (mut viewer, _) = listener.accept().unwrap();
        let mut origin = testkit::narrow_socket(server, 8 << 10).unwrap();
        let (mut from, mut to) = (viewer.try_clone().unwrap(), origin.try_clone().unwrap());
        thread::spawn(move || std::io::copy(&mut from, &mut to));
        origin.set_read_timeout(Some(STEP)).unwrap();
        let mut buffer = vec![0; 1 << 20];
        // When the link has carried what it was given.
        let mut free = Instant::now();
        loop {
            let rate = carries.load(Relaxed);
            let most = (rate / 50).clamp(1, buffer.len());
            match uninterrupted(|| origin.read(&mut buffer[..most])) {
                Ok(0) => return,
                Ok(read) if viewer.write_all(&buffer[..read]).is_err() => return,
                Ok(read) => {
                    free += Duration::from_secs_f64(read as f64 / rate as f64);
                    thread::sleep(free.saturating_duration_since(Instant::now()));
                }
                // Nothing waits.
                Err(error) if error.kind() == ErrorKind::WouldBlock => free = Instant::now(),
                Err(_) => return,
            }
        }
    });
    (address, rate)
}

/// Three renditions of 48 s with the same keyframes.
fn movie(folder: &Path) {
    std::fs::create_dir(folder).unwrap();
    for (name, rate, size) in
        [("low", "150k", "160x120"), ("medium", "800k", "320x240"), ("high", "2500k", "480x360")]
    {
        let picture = format!("testsrc2=size={size}:rate=10:duration=48,noise=alls=50:allf=t");
        let file = folder.join(format!("{name}.mp4"));
        ffmpeg(
            ["-f", "lavfi", "-i", &picture, "-c:v", "libx264", "-preset", "ultrafast"]
                .into_iter()
                .chain(["-b:v", rate, "-maxrate", rate, "-bufsize", rate, "-pix_fmt", "yuv420p"])
                .chain(["-g", "20", "-keyint_min", "20", "-sc_threshold", "0"])
                .chain([file.to_str().unwrap()]),
        );
    }
}

/// A viewer that checks its messages: each segment is the next one, of the rendition that was named
/// last.
struct Follower {
    client: Client,
    segments: Vec<Vec<Vec<u8>>>,
    rendition: usize,
    next: usize,
}

impl Follower {
    /// The next frame, checked.
    #[track_caller]
    fn next(&mut self) -> Frame {
        let frame = self.client.next().expect("it goes on");
        match frame.opcode {
            1 => {
                let event = frame.event();
                assert!(event["event"] != "discontinuity" && event["event"] != "error", "{event}");
                if let Some(name) = event["rendition"].as_str() {
                    self.rendition = name[1..].parse().unwrap();
                    let header = self.client.next().unwrap();
                    assert_eq!(header.payload[4..8], *b"ftyp");
                }
            }
            2 => {
                let wanted = &self.segments[self.rendition][self.next];
                assert_eq!(track_of(&frame.payload), track_of(wanted), "segment {}", self.next);
                assert!(frame.payload == *wanted, "segment {}", self.next);
                self.next += 1;
            }
            _ => {}
        }
        frame
    }

    /// Reads until the rendition is a wanted one, which must happen before the title ends.
    #[track_caller]
    fn until(&mut self, wanted: impl Fn(usize) -> bool) {
        while !wanted(self.rendition) {
            assert!(self.next < self.segments[0].len(), "v{} to the end", self.rendition);
            self.next();
        }
    }
}

#[test]
fn a_viewer_is_sent_what_its_link_carries() {
    let folder = tempfile::tempdir().unwrap();
    movie(&folder.path().join("movie"));
    let server = server(folder.path(), "");
    let all: Vec<_> =
        ["v0", "v1", "v2"].map(|track| segments(&server, "movie", track)).into_iter().collect();
    let watch = |address, query: &str| {
        let client = Client::connect(address, &format!("/vod/movie/push?{query}"));
        let mut follower = Follower { client, segments: all.clone(), rendition: 9, next: 0 };
        follower.next();
        follower
    };
    // Nothing is known about the link yet, so the viewer does not get the best rendition.
    let mut near = watch(server.http, "pace=realtime");
    assert_eq!(near.rendition, 1);
    let (address, rate) = link(server.http, 40_000);
    let mut far = watch(address, "pace=fast");
    assert_eq!(far.rendition, 1);
    far.until(|rendition| rendition == 2);
    rate.store(350_000, Relaxed);
    far.until(|rendition| rendition < 2);
    // Bursts have shown that the link has room.
    near.until(|rendition| rendition == 0);
    // A viewer that names a rendition gets that one.
    let (address, _) = link(server.http, 40_000);
    let mut pinned = watch(address, "pace=fast&rendition=medium");
    while pinned.next < 2 {
        pinned.next();
    }
    assert_eq!(pinned.rendition, 1);
}
