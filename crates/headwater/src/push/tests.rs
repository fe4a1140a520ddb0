//! Rules about time: pings, patience, the choice of a rendition, and the pace of titles. Each test
//! is the peer of a viewer's connection, and the clock stands still while anything is done.

use http::net::{Drain, Gate, Worker};
use http::{Counters, Held, Transport};
use protocol::push::query::Pace;
use serde_json::Value;
use tokio::task::LocalSet;
use tokio::time::{Duration, Instant, sleep};

use super::*;
use crate::access::Grant;
use crate::config::{Config, PushRule, Size};
use crate::double::{ALL, Double, PEER, STEP, Source};
use crate::traces::Trace;

const TITLE: &str = "mp4/two-minutes.mp4";

/// The default time between pings.
const INTERVAL: Duration = Duration::from_secs(9);

async fn local(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

fn config() -> Config {
    let mut config = Config::default();
    config.vod.root = testkit::media_dir();
    config
}

/// The connection of a viewer, as it is after the 101.
fn upgraded(double: &Double) -> Upgraded {
    let gate = Arc::new(Gate::new(1, None));
    let permit = gate.admit(PEER.ip()).unwrap();
    let counters = Arc::new(Counters::new(gate, 1));
    Upgraded {
        transport: Box::new(double.clone()),
        input: bytes::Bytes::new(),
        peer: PEER,
        drain: Drain::default(),
        held: Held::new(&counters, &Worker::new(0), permit),
    }
}

/// A viewer of the stream that waits for its messages.
fn viewer(source: &Source, capacity: usize) -> Peer {
    let (push, stream) = (Push::new(Arc::clone(&source.origin)), source.stream());
    let query = Query { alive: true, ..Query::default() };
    let mut viewer = stream::Viewer::new(&push, &stream, query);
    assert!(viewer.choose().is_ok());
    let double = Double::new(capacity);
    spawn_local(viewer.run(upgraded(&double), Grant::default(), Trace::default()));
    Peer { double, input: Vec::new() }
}

/// Publishes for this long, while the link carries `rate` bytes a second to the viewer. Returns
/// what the viewer got, with the time since the beginning.
async fn run(
    source: &mut Source,
    viewer: &mut Peer,
    rate: usize,
    time: Duration,
) -> Vec<(Duration, Frame)> {
    let (began, mut frames) = (Instant::now(), Vec::new());
    while began.elapsed() < time && !viewer.double.is_closed() {
        viewer.double.carry(rate).await;
        source.go_on();
        frames.extend(viewer.frames().map(|frame| (began.elapsed(), frame)));
    }
    frames
}

/// A message of the server: opcode and payload (RFC 6455 5.2).
#[derive(Debug)]
struct Frame(u8, Vec<u8>);

impl Frame {
    fn event(&self) -> Option<Value> {
        (self.0 == 1).then(|| serde_json::from_slice(&self.1).unwrap())
    }

    fn rendition(&self) -> Option<String> {
        let event = self.event()?;
        event["rendition"].as_str().map(str::to_owned)
    }
}

/// The viewer's end of a connection.
struct Peer {
    double: Double,
    input: Vec<u8>,
}

impl Peer {
    /// Sends a message.
    fn say(&self, first: u8, payload: &str) {
        self.double.say(&testkit::push::masked(first, payload.as_bytes()));
    }

    /// The messages that the viewer has.
    fn frames(&mut self) -> impl Iterator<Item = Frame> {
        self.input.append(&mut self.double.taken());
        std::iter::from_fn(|| {
            let [first, second, ..] = self.input[..] else { return None };
            let (head, size) = match second {
                126 => (4, u16::from_be_bytes(*self.input.get(2..4)?.first_chunk()?).into()),
                127 => (10, u64::from_be_bytes(*self.input.get(2..10)?.first_chunk()?) as usize),
                short => (2, short.into()),
            };
            let payload = self.input.get(head..head + size)?.to_vec();
            self.input.drain(..head + size);
            Some(Frame(first & 15, payload))
        })
    }
}

/// The renditions that these messages name.
fn renditions(frames: &[(Duration, Frame)]) -> Vec<String> {
    frames.iter().filter_map(|(_, frame)| frame.rendition()).collect()
}

fn count(frames: &[(Duration, Frame)], opcode: u8) -> usize {
    frames.iter().filter(|(_, frame)| frame.0 == opcode).count()
}

#[tokio::test(start_paused = true)]
async fn silent_viewers_are_pinged_twice_and_gone_after_three_intervals() {
    local(async {
        let mut source = Source::new(config(), &[400_000]);
        let mut viewer = viewer(&source, 1 << 20);
        let frames = run(&mut source, &mut viewer, ALL, INTERVAL * 3 - STEP).await;
        assert!(!viewer.double.is_closed());
        assert_eq!((count(&frames, 9), count(&frames, 8)), (2, 0));
        // Pages hear of it, too, and from the beginning how often they will.
        let alive = br#"{"event":"alive","every":9.0}"#;
        let told: Vec<_> = frames.iter().filter(|(_, frame)| frame.1 == alive).collect();
        assert!(told.len() == 3 && told[0].0 < INTERVAL, "{told:?}");
        assert!(count(&frames, 2) > 25, "it is sent media all the time");
        run(&mut source, &mut viewer, ALL, STEP * 3).await;
        assert!(viewer.double.is_closed() && viewer.double.is_forgotten());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whatever_a_viewer_says_shows_that_it_is_there() {
    local(async {
        let mut source = Source::new(config(), &[400_000]);
        let mut viewer = viewer(&source, 1 << 20);
        let second = Duration::from_secs(1);
        // A pong that nobody asked for, a ping, a command.
        for (first, payload) in [(0x8A, ""), (0x89, "x"), (0x81, "{}")] {
            run(&mut source, &mut viewer, ALL, INTERVAL * 2 + second).await;
            viewer.say(first, payload);
        }
        // Two pings had no answer before the last message, and three have none after it.
        run(&mut source, &mut viewer, ALL, INTERVAL * 2 + second * 5).await;
        assert!(!viewer.double.is_closed());
        run(&mut source, &mut viewer, ALL, second * 2).await;
        assert!(viewer.double.is_closed());
    })
    .await;
}

/// The kernel has no room for more all this time.
#[tokio::test(start_paused = true)]
async fn a_viewer_with_data_to_take_stays_while_it_takes_a_byte_and_is_not_pinged() {
    local(async {
        let mut config = config();
        config.http.send_timeout.0 = Duration::from_secs(12);
        config.live.viewer_patience.0 = Duration::from_secs(3600);
        let mut source = Source::new(config, &[400_000]);
        let mut viewer = viewer(&source, 20_000);
        for _ in 0..30 {
            run(&mut source, &mut viewer, 0, Duration::from_secs(10)).await;
            assert!(!viewer.double.is_closed());
            viewer.double.take(1);
        }
        let began = Instant::now();
        run(&mut source, &mut viewer, 0, Duration::from_secs(60)).await;
        let least = Duration::from_secs(12);
        assert!((least..least * 5 / 4 + STEP).contains(&began.elapsed()), "{:?}", began.elapsed());
        assert!(viewer.double.is_closed() && viewer.double.is_forgotten());
        viewer.double.take(usize::MAX);
        assert!(viewer.frames().all(|frame| frame.0 != 9));
    })
    .await;
}

/// The kernel has the rest of the stream when it ends, and the viewer needs long to take it.
#[tokio::test(start_paused = true)]
async fn a_viewer_takes_the_end_of_a_stream_before_its_connection_closes() {
    local(async {
        let mut config = config();
        config.http.send_timeout.0 = Duration::from_secs(10);
        config.live.viewer_patience.0 = Duration::from_secs(60);
        // What the link carries in a second, and how long the connection stays open.
        for (rate, has_all, open) in
            [(15_000, true, 34..37), (0, false, 12..15), (1000, false, 62..65)]
        {
            let mut source = Source::new(config.clone(), &[400_000]);
            let mut viewer = viewer(&source, 1 << 20);
            run(&mut source, &mut viewer, ALL, Duration::from_secs(5)).await;
            // 50,000 bytes a second are published, and wait in the kernel.
            run(&mut source, &mut viewer, 0, Duration::from_secs(10)).await;
            source.end();
            let began = Instant::now();
            let frames = run(&mut source, &mut viewer, rate, Duration::from_secs(600)).await;
            assert!(viewer.double.is_closed());
            assert!(open.contains(&began.elapsed().as_secs()), "{rate}: {:?}", began.elapsed());
            let has_rest = viewer.double.unacknowledged() == Some(0);
            // Its last frame closes the WebSocket.
            let is_told = frames.last().is_some_and(|(_, frame)| frame.0 == 8);
            assert_eq!((has_rest, is_told), (has_all, has_all), "{rate}");
            // The kernel does not keep what a silent viewer has not taken.
            assert_eq!(viewer.double.is_forgotten(), !has_all, "{rate}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_stays_behind_is_skipped_at_first_and_then_told_why_it_must_leave() {
    local(async {
        let mut config = config();
        config.live.viewer_queue = Size(200_000);
        config.live.viewer_patience.0 = Duration::from_secs(10);
        let mut source = Source::new(config, &[1_600_000]);
        let mut viewer = viewer(&source, 20_000);
        // 200,000 bytes a second are published, and this carries less.
        let frames = run(&mut source, &mut viewer, 120_000, Duration::from_secs(120)).await;
        assert!(viewer.double.is_closed() && !viewer.double.is_forgotten());
        let at = |word: &str| {
            let named = |(at, frame): &(_, Frame)| {
                frame.event().is_some_and(|event| event.to_string().contains(word)).then_some(*at)
            };
            frames.iter().find_map(named).expect(word)
        };
        let (skipped, slow) = (at("skipped"), at("slow"));
        assert!(skipped < slow && slow >= Duration::from_secs(10), "{skipped:?}, {slow:?}");
        let (_, last) = frames.last().unwrap();
        assert_eq!((last.0, &last.1[..2]), (8, &1008_u16.to_be_bytes()[..]));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_rendition_follows_the_link_down_and_up_again() {
    local(async {
        let mut source = Source::new(config(), &[200_000, 1_000_000, 4_000_000]);
        let mut viewer = viewer(&source, 256 << 10);
        let mut seconds = async |rate, seconds| {
            let mut frames = Vec::new();
            for _ in 0..seconds {
                viewer.say(0x8A, "");
                frames.extend(run(&mut source, &mut viewer, rate, Duration::from_secs(1)).await);
            }
            renditions(&frames)
        };
        // Bytes a second: four times what the best has, and twice what the least has.
        let (wide, narrow) = (2_000_000, 50_000);
        assert_eq!(seconds(wide, 10).await, ["v1", "v2"]);
        assert_eq!(seconds(narrow, 10).await.first().unwrap(), "v0");
        assert_eq!(seconds(wide, 60).await.last().unwrap(), "v2");
        assert_eq!(seconds(wide, 60).await, [""; 0], "it keeps what the link carries");
    })
    .await;
}

/// The link carries the middle rendition twice over, and half of the best.
#[tokio::test(start_paused = true)]
async fn the_operator_chooses_the_rule() {
    local(async {
        for rule in [PushRule::Throughput, PushRule::Evidence, PushRule::ThreeState] {
            let mut config = config();
            config.push.rule = rule;
            let mut source = Source::new(config, &[200_000, 1_000_000, 4_000_000]);
            let mut viewer = viewer(&source, 256 << 10);
            let mut frames = Vec::new();
            for _ in 0..60 {
                viewer.say(0x8A, "");
                let second = Duration::from_secs(1);
                frames.extend(run(&mut source, &mut viewer, 250_000, second).await);
            }
            assert!(!viewer.double.is_closed(), "{rule:?}");
            // The study's rule goes up whenever nothing waits. The others know what the link carries.
            let tries = renditions(&frames).iter().filter(|name| *name == "v2").count();
            assert_eq!(tries > 4, rule == PushRule::ThreeState, "{rule:?}: {tries}");
            assert_eq!(tries > 0, rule == PushRule::ThreeState, "{rule:?}: {tries}");
        }
    })
    .await;
}

/// A viewer of a title with this pace.
fn watch(origin: &Arc<Origin>, path: &str, pace: Option<Pace>, capacity: usize) -> Peer {
    let title = origin.titles.title(path).unwrap();
    let query = Query { pace, ..Query::default() };
    let viewer = title::Viewer::new(&Push::new(Arc::clone(origin)), &title, query);
    let double = Double::new(capacity);
    spawn_local(viewer.ok().unwrap().run(upgraded(&double), Grant::default(), Trace::default()));
    Peer { double, input: Vec::new() }
}

/// Lets time pass while the link carries `rate` bytes a second. Returns what the viewer got, with
/// the time since the beginning.
async fn get(viewer: &mut Peer, rate: usize, time: Duration) -> Vec<(Duration, Frame)> {
    let (began, mut frames) = (Instant::now(), Vec::new());
    while began.elapsed() < time && !viewer.double.is_closed() {
        viewer.double.carry(rate).await;
        frames.extend(viewer.frames().map(|frame| (began.elapsed(), frame)));
        if (began.elapsed().as_millis() / STEP.as_millis()).is_multiple_of(500) {
            viewer.say(0x8A, "");
        }
    }
    frames
}

/// The time of each video segment among these messages, in seconds, and when it came.
fn segments(title: &Title, frames: &[(Duration, Frame)]) -> Vec<(Duration, Duration)> {
    let scale = title.tracks[0].media.timescale;
    let media = frames.iter().filter(|(_, frame)| frame.0 == 2 && frame.1[4..8] != *b"ftyp");
    // Renditions have the first numbers.
    let renditions = title_cursor::renditions(title).count() as u32;
    let video = media.filter(|(_, frame)| testkit::track_of(&frame.1) <= renditions);
    let time = |frame: &Frame| testkit::time_of(&frame.1) as f64 / f64::from(scale);
    video.map(|(at, frame)| (Duration::from_secs_f64(time(frame)), *at)).collect()
}

#[tokio::test(start_paused = true)]
async fn each_segment_of_a_title_goes_out_when_its_pace_says() {
    local(async {
        let origin = Arc::new(Origin::new(config()));
        let plan = origin.config.vod.plan(None);
        let mut viewer = watch(&origin, TITLE, None, 16 << 20);
        let frames = get(&mut viewer, ALL, Duration::from_secs(200)).await;
        let title = origin.titles.title(TITLE).unwrap();
        let segments = segments(&title, &frames);
        assert!(segments.len() > 20, "{segments:?}");
        for (time, at) in &segments {
            let late = at.checked_sub(plan.delay(time.saturating_sub(segments[0].0)));
            // The first step of the link, and another after the segment was written.
            assert!(late.is_some_and(|late| late <= STEP * 3), "{time:?} came at {at:?}");
        }
        assert_eq!(frames.last().unwrap().1.0, 8, "it ends in order");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_the_pace_of_a_title() {
    local(async {
        let origin = Arc::new(Origin::new(config()));
        let title = origin.titles.title(TITLE).unwrap();
        let mut viewer = watch(&origin, TITLE, None, 16 << 20);
        let before = segments(&title, &get(&mut viewer, ALL, Duration::from_secs(10)).await);
        viewer.say(0x81, r#"{"pause": true}"#);
        let pause = Duration::from_secs(60);
        assert!(get(&mut viewer, ALL, pause).await.iter().all(|(_, frame)| frame.0 != 2));
        viewer.say(0x81, r#"{"pause": false}"#);
        let after = segments(&title, &get(&mut viewer, ALL, Duration::from_secs(30)).await);
        let plan = origin.config.vod.plan(None);
        let (time, at) = after[0];
        let due = plan.delay(time - before[0].0) - Duration::from_secs(10);
        assert!(at >= due && at <= due + STEP * 5, "{time:?}: {at:?}, not {due:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_viewer_of_a_title_stays_while_it_takes_a_byte() {
    local(async {
        let mut config = config();
        config.http.send_timeout.0 = Duration::from_secs(12);
        let origin = Arc::new(Origin::new(config));
        let mut viewer = watch(&origin, TITLE, Some(Pace::Fast), 20_000);
        for _ in 0..30 {
            sleep(Duration::from_secs(10)).await;
            assert!(!viewer.double.is_closed());
            viewer.double.take(1);
        }
        let took = viewer.double.closed().await;
        let least = Duration::from_secs(12);
        assert!((least..least * 5 / 4 + STEP).contains(&took), "{took:?}");
        assert!(viewer.double.is_forgotten());
        assert!(viewer.frames().all(|frame| frame.0 != 9));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_rendition_of_a_title_follows_the_link_from_segment_to_segment() {
    local(async {
        // Two files with the same frames, one of them with a lot of filler data (H.264, 7.3.2.7).
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("movie")).unwrap();
        let mut frames = testkit::Avc::of(TITLE);
        frames.samples.retain(|sample| sample.dts < 60_000);
        std::fs::write(folder.path().join("movie/low.mp4"), frames.mp4()).unwrap();
        let filler = [&[0, 0, 0x27, 0x11, 12][..], &[0xFF; 9999], &[0x80]].concat();
        frames.samples.iter_mut().for_each(|sample| sample.data.extend_from_slice(&filler));
        std::fs::write(folder.path().join("movie/high.mp4"), frames.mp4()).unwrap();
        let mut config = config();
        config.vod.root = folder.path().to_owned();
        let origin = Arc::new(Origin::new(config));
        let title = origin.titles.title("movie").unwrap();
        let [high, low] = [0, 1].map(|track| &title.tracks[track]);
        let mut viewer = watch(&origin, "movie", Some(Pace::Realtime), 64 << 10);
        let mut got = Vec::new();
        for (bits, seconds, wanted) in [
            (4 * high.bandwidth.average, 20, high),
            (2 * low.bandwidth.average, 20, low),
            (4 * high.bandwidth.average, 60, high),
        ] {
            let rate = bits as usize / 8;
            let frames = get(&mut viewer, rate, Duration::from_secs(seconds)).await;
            assert_eq!(renditions(&frames).last(), Some(&wanted.name), "{bits} bit/s");
            got.extend(frames);
        }
        let times: Vec<_> = segments(&title, &got).into_iter().map(|(time, _)| time).collect();
        let all = high.segments().count();
        assert!(times.is_sorted_by(|a, b| a < b) && times.len() == all, "{all}: {times:?}");
    })
    .await;
}
