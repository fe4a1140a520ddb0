//! Publishers and viewers by WebRTC, at other nodes than the stream's.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use serde_json::Value;
use testkit::{Nats, Program, Server, eventually, http};

use crate::support::{LIMIT, clip, node, publish};

/// What crosses NATS of the stream `x`.
#[derive(Default)]
struct Heard {
    /// Single frames.
    frames: AtomicU64,
    /// Changes, among them all parts, since the last frame.
    since: AtomicU64,
}

impl Heard {
    /// Listens as long as the runtime is there.
    fn listen(runtime: &tokio::runtime::Runtime, nats: &Nats) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let (counts, url) = (Arc::clone(&heard), nats.url(0));
        let messages = runtime.block_on(async move {
            let client = async_nats::connect(url).await.unwrap();
            client.subscribe("headwater.*.x").await.unwrap()
        });
        runtime.spawn(messages.for_each(move |message| {
            if &*message.subject == "headwater.units.x" {
                counts.frames.fetch_add(1, Ordering::Relaxed);
                counts.since.store(0, Ordering::Relaxed);
            } else {
                counts.since.fetch_add(1, Ordering::Relaxed);
            }
            std::future::ready(())
        }));
        heard
    }

    fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Waits until parts come, and no frames.
    fn until_no_frames(&self) {
        eventually(LIMIT, "no frames", || self.since.load(Ordering::Relaxed) >= 30);
    }
}

#[test]
fn a_viewer_by_whep_sees_the_film_at_a_node_that_has_a_copy() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let (runtime, film) = (tokio::runtime::Runtime::new().unwrap(), clip());
    let heard = Heard::listen(&runtime, &nats);
    let _publisher = publish(&a, &film, "live/x");
    let playlist = "/live/x/v0/media.m3u8";
    eventually(LIMIT, "a copy", || http::get(b.http, playlist).status() == 200);
    heard.until_no_frames();
    assert_eq!(heard.frames(), 0);
    let mut watch = Command::new(testkit::built("streamgauge", "streamgauge"));
    watch.args(["watch", &b.url("/live/x/whep"), "--duration", "20s", "--json", "--reference"]);
    let watched = Program::spawn(watch.arg(&film)).wait(LIMIT);
    let document: Value = serde_json::from_slice(&watched.stdout).unwrap();
    let viewer = &document["viewer"];
    // A frame that is not the film's, or not the next one, would be trouble.
    assert_eq!(viewer["end"], "time", "{document:#}");
    assert!(viewer["troubles"].as_object().unwrap().is_empty(), "{document:#}");
    // There are 25 a second. The sound is made of what the copy has.
    assert!(viewer["verified"]["matched"].as_u64().unwrap() > 60, "{document:#}");
    for track in ["video", "audio"] {
        assert!(viewer[track]["received"].as_f64().unwrap() > 0.0, "{document:#}");
    }
    assert!(heard.frames() > 60, "{}", heard.frames());
    heard.until_no_frames();
}

/// Publishes a film again and again by WHIP.
fn publish_by_whip(node: &Server, film: &Path) -> Program {
    node.publish(film, &node.url("/live/x/whip"), &["--loop"])
}

#[test]
fn a_name_that_is_published_elsewhere_is_refused_by_whip_and_to_others_than_whip() {
    let nats = Nats::start();
    let (a, b) = (node(&nats, "a"), node(&nats, "b"));
    let film = testkit::clip("mp4/film.mp4");
    let mut first = publish_by_whip(&a, &film);
    eventually(LIMIT, "b has it", || http::get(b.http, "/live/x/index.m3u8").status() == 200);
    let refused = publish_by_whip(&b, &film).wait(LIMIT);
    assert_eq!(refused.status.code(), Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("409 Conflict: already published"), "{}", refused.stderr);
    let refused = publish(&b, &clip(), "live/x").wait(LIMIT);
    assert!(!refused.status.success(), "{}", refused.stderr);
    b.log_line(LIMIT, |line| line.contains("already published"));
    assert!(first.is_running());
}
