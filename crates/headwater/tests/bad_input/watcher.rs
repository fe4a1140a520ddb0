//! A low-latency viewer that reads every part as it is published and misses none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use testkit::http::Client;
use testkit::{Program, eventually};

use crate::support::{LIMIT, Origin, Playlist};

/// A stream that is independent of the test's other streams. It is published in real time and
/// watched throughout.
pub(crate) struct Bystander {
    _publisher: Program,
    watcher: Watcher,
}

impl Bystander {
    #[track_caller]
    pub(crate) fn start(origin: &Origin) -> Self {
        let publisher = origin.publish("live/bystander", &["--loop"]);
        origin.playlist("live/bystander", "v0");
        Self { _publisher: publisher, watcher: Watcher::start(origin.http, "live/bystander") }
    }

    /// Asserts that it was not disturbed and has not stopped.
    #[track_caller]
    pub(crate) fn finish(self) {
        self.watcher.finish();
    }
}

pub(crate) struct Watcher {
    stop: Arc<AtomicBool>,
    parts: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

/// Parts last 200 ms, but on a busy machine the publisher of the parts is late as well. An event loop
/// that waited for hostile peers would stand for twice this time or longer: each peer is silent until
/// its time-out, and there are dozens of them.
const LONGEST_GAP: Duration = Duration::from_secs(10);

impl Watcher {
    pub(crate) fn start(address: SocketAddr, stream: &str) -> Self {
        let (stop, parts) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let thread = std::thread::spawn({
            let (stop, parts, stream) = (Arc::clone(&stop), Arc::clone(&parts), stream.to_owned());
            move || watch(address, &stream, &stop, &parts)
        });
        Self { stop, parts, thread }
    }

    /// Waits for another part, which shows that the stream has not stopped, and ends.
    #[track_caller]
    pub(crate) fn finish(self) {
        let seen = self.parts.load(Ordering::Acquire);
        eventually(LIMIT, "two more parts come, or the watcher has failed", || {
            self.parts.load(Ordering::Acquire) > seen + 1 || self.thread.is_finished()
        });
        self.stop.store(true, Ordering::Release);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

fn watch(address: SocketAddr, stream: &str, stop: &AtomicBool, parts: &AtomicUsize) {
    let mut client = Client::connect(address, LIMIT).expect("the server listens");
    let mut ask = |path: &str| {
        let response = client.get(path, &[]);
        assert_eq!(response.status(), 200, "{path}: {response:?}");
        response
    };
    let playlist = |response: testkit::http::Response| Playlist(response.text().to_owned());
    let base = format!("/{stream}/v0/media.m3u8");
    let all = playlist(ask(&base)).parts();
    let (mut msn, mut part) = *all.last().expect("a stream has parts");
    let mut arrived = Instant::now();
    while !stop.load(Ordering::Acquire) {
        let next = playlist(ask(&format!("{base}?_HLS_msn={msn}&_HLS_part={}", part + 1)));
        assert_eq!(next.discontinuities(), 0, "{}", next.0);
        let new: Vec<_> = next.parts().into_iter().filter(|at| *at > (msn, part)).collect();
        assert!(!new.is_empty(), "a blocking reload without news after {msn}.{part}: {}", next.0);
        for at in new {
            let follows = at == (msn, part + 1) || at == (msn + 1, 0);
            // Parts are listed near the live edge only. A watcher that was not run for a while finds whole segments.
            let is_listed = |msn| next.0.lines().any(|line| line == format!("{msn}.m4s"));
            let is_after_whole = || at.1 == 0 && (msn..at.0).all(is_listed);
            assert!(follows || is_after_whole(), "{at:?} follows {msn}.{part}: {}", next.0);
            (msn, part) = at;
            let body = ask(&format!("/{stream}/v0/{msn}.{part}.m4s")).body;
            assert!(body.windows(4).any(|name| name == b"moof"), "{msn}.{part}");
            parts.fetch_add(1, Ordering::AcqRel);
        }
        let gap = arrived.elapsed();
        assert!(gap < LONGEST_GAP, "{gap:?} without a part before {msn}.{part}");
        arrived = Instant::now();
    }
}
