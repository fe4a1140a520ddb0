//! A rendition that goes while viewers watch it, and another that stays.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use media::flv::TagKind;
use testkit::http::Client as Http;
use testkit::rtmp::Client;
use testkit::{eventually, push};

use crate::renditions::{as_second_track, begin, listed, names};
use crate::support::{ALL, LIMIT, Origin, clip, of_second, send_second};
use crate::viewers::{self, FLV_HEADER, Media};

/// What has left is gone after a second. Whatever else takes time may take longer than a test, on
/// a slow machine as well: so nothing else ends a wait, and viewers miss nothing.
const SETTINGS: &str = r#"
[live]
reconnect = "1s"
silence = "5m"
segment_target = "500ms"
target_duration = "60s"
keyframe_distance = "60s"
window = "5m"
viewer_queue = "256MiB"
viewer_patience = "5m"
[push]
ping_interval = "5m"
"#;

/// The longest that any viewer watches.
const WHOLE: Duration = Duration::from_secs(180);

/// The end of each frame of the rendition that goes: a NAL unit of filler data (H.264, 7.3.2.7). It
/// makes this rendition the one of most bits per second.
fn mark() -> Vec<u8> {
    let mut nal = vec![0, 0, 0x10, 0, 0x0c];
    nal.resize(4 + 0x1000, 0xff);
    nal
}

/// A frame of the rendition that goes.
fn marked(payload: &[u8]) -> Bytes {
    [payload, &mark()].concat().into()
}

fn is_marked(media: &Media) -> bool {
    let mark = mark();
    media.bytes.windows(mark.len()).any(|bytes| bytes == mark)
}

/// What the publishers do next.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Publish this second of both renditions.
    Both(u32),
    /// End the rendition that goes.
    End,
    /// Publish this second of the other one.
    Other(u32),
}

/// Watches the media that `next` gives: frames of the rendition that goes, then a second of the
/// other one. Returns false if the answer ends instead. All comes in order, once, and without a
/// hole.
fn watch(who: &str, watching: &AtomicUsize, mut next: impl FnMut() -> Option<Media>) -> bool {
    let (begun, mut last, mut of_other) = (Instant::now(), f64::MIN, None);
    loop {
        assert!(begun.elapsed() < WHOLE, "{who} waits for ever");
        let Some(media) = next() else {
            assert!(last > f64::MIN, "{who} is sent nothing");
            return false;
        };
        if media.kind != TagKind::Video {
            continue;
        }
        let is_first = last == f64::MIN;
        // Milliseconds are rounded. Chunks last 0.2 s, and the last one may be left out.
        let in_order = last - 0.002..last + 0.5;
        assert!(is_first || in_order.contains(&media.time), "{who}: {} after {last}", media.time);
        last = media.time;
        if is_marked(&media) {
            assert_eq!(of_other, None, "{who}: the rendition came back");
            watching.fetch_add(usize::from(is_first), Ordering::AcqRel);
        } else {
            assert!(!is_first, "{who} begins with the rendition of less bits per second");
            if last > *of_other.get_or_insert(last) + 1.0 {
                return true;
            }
        }
    }
}

fn watch_mp4(origin: &Origin, watching: &AtomicUsize) {
    let mut http = viewers::ask(origin, "live.mp4", WHOLE);
    let mut body = viewers::body(&mut http);
    let goes_on = watch("live.mp4", watching, || viewers::next_of_mp4(&mut body));
    // Its header cannot change. Whoever asks again is sent the other rendition.
    assert!(!goes_on, "a header within live.mp4");
    let mut http = viewers::ask(origin, "live.mp4", WHOLE);
    let mut body = viewers::body(&mut http);
    let mut media = std::iter::from_fn(|| viewers::next_of_mp4(&mut body));
    let first = media.find(|media| media.kind == TagKind::Video).expect("media");
    assert!(!is_marked(&first), "live.mp4 begins with a rendition that has gone");
}

fn watch_flv(origin: &Origin, watching: &AtomicUsize) {
    let mut http = viewers::ask(origin, "live.flv", WHOLE);
    let mut body = viewers::body(&mut http);
    viewers::read(&mut body, FLV_HEADER).expect("the file's header");
    let goes_on = watch("live.flv", watching, || viewers::next_of_flv(&mut body));
    assert!(goes_on, "live.flv ends");
}

fn watch_rtmp(origin: &Origin, watching: &AtomicUsize) {
    let mut player = Client::play(origin.rtmp, "live/x");
    let goes_on = watch("RTMP", watching, || viewers::next_of_rtmp(&mut player));
    assert!(goes_on, "RTMP ends");
}

fn watch_push(origin: &Origin, watching: &AtomicUsize) {
    let mut viewer = push::Client::connect(origin.http, "/live/x/push?rendition=v1");
    let mut told = Vec::new();
    let goes_on =
        watch("push", watching, || viewers::next_of_push(&mut viewer, |event| told.push(event)));
    assert!(goes_on, "push ends: {told:?}");
    let is_change = |event: &&serde_json::Value| event["event"] == "rendition";
    let changes: Vec<_> = told.iter().filter(is_change).map(|event| &event["rendition"]).collect();
    assert_eq!((&told[0]["rendition"], changes), (&"v1".into(), vec![&"v0".into()]), "{told:?}");
}

/// Requests for media of the rendition that goes.
struct Held {
    /// What is asked for does not exist yet.
    waiting: Vec<(String, Http)>,
    /// The segment that is being made.
    segment: Http,
}

impl Held {
    /// Asks when everything that was published is there: segment `open` is being made.
    #[track_caller]
    fn ask(origin: &Origin, open: u64) -> Self {
        let mut parts = 0;
        eventually(LIMIT, "the last second is there", || {
            let playlist = origin.playlist("live/x", "v1");
            parts = playlist.parts().iter().filter(|(msn, _)| *msn == open).count();
            // The last part may wait for the next frame.
            playlist.open_msn() == open && parts >= 4
        });
        let next = open + 1;
        let waiting = [
            format!("{open}.{}.m4s", parts + 1),
            format!("{next}.0.m4s"),
            format!("{next}.m4s"),
            format!("media.m3u8?_HLS_msn={open}&_HLS_part={}", parts + 1),
            format!("media.m3u8?_HLS_msn={open}"),
        ];
        // Counts a request once its head has come.
        let requests = || origin.metric("headwater_http_requests_total");
        let before = requests();
        let segment = viewers::ask(origin, &format!("v1/{open}.m4s"), LIMIT);
        let (mut sockets, mut asked) = (Vec::new(), Vec::new());
        for file in waiting {
            let socket = TcpStream::connect(origin.http).expect("the server listens");
            sockets.push(socket.try_clone().expect("a descriptor"));
            let mut http = Http::over(socket, LIMIT).expect("it is connected");
            http.send("GET", &format!("/live/x/v1/{file}"), &[], b"").expect("the server is there");
            asked.push((file, http));
        }
        let all = asked.len() as u64 + 1;
        eventually(LIMIT, "the server has the requests", || requests() >= before + all);
        for (socket, (file, _)) in sockets.iter().zip(&asked) {
            socket.set_nonblocking(true).expect("it is a socket");
            let error = socket.peek(&mut [0]).expect_err(file);
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "{file}");
            socket.set_nonblocking(false).expect("it is a socket");
        }
        Self { waiting: asked, segment }
    }

    /// What was waited for does not exist. The segment has ended.
    fn await_answers(self) {
        for (file, mut http) in self.waiting {
            let answer = http.receive().unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(answer.status(), 404, "{file}: {answer:?}");
        }
        let mut http = self.segment;
        let answer = http.receive().expect("the segment ends with its rendition");
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert!(answer.body.ends_with(&mark()), "{answer:?}");
    }
}

/// Takes each step with `publish`: both renditions from second 3 on, then one. Asserts that those
/// who watch or ask for the rendition that goes are sent the other one, or are told that it has
/// gone.
#[track_caller]
fn assert_nobody_waits_for_it(origin: &Origin, mut publish: impl FnMut(Step)) {
    let (watching, begun) = (&AtomicUsize::new(0), Instant::now());
    let mut seconds = 3..;
    let mut next = |publish: &mut dyn FnMut(Step), step: fn(u32) -> Step| {
        assert!(begun.elapsed() < WHOLE, "{}", origin.log());
        publish(step(seconds.next().expect("it has no end")));
        thread::sleep(Duration::from_millis(200));
        seconds.start
    };
    while listed(origin) != (names(&["v0", "v1"]), names(&["v0", "v1"])) {
        next(&mut publish, Step::Both);
    }
    let first = origin.playlist("live/x", "v1").first_msn();
    thread::scope(|scope| {
        let viewers = [watch_mp4, watch_flv, watch_rtmp, watch_push];
        let viewers = viewers
            .map(|viewer: fn(&Origin, &AtomicUsize)| scope.spawn(move || viewer(origin, watching)));
        let mut now = 0;
        while watching.load(Ordering::Acquire) < viewers.len() {
            assert!(!viewers.iter().any(|viewer| viewer.is_finished()), "a viewer ended");
            now = next(&mut publish, Step::Both);
        }
        // Each second has a segment.
        let held = Held::ask(origin, first + u64::from(now - 1) - 3);
        publish(Step::End);
        let held = scope.spawn(|| held.await_answers());
        while !(held.is_finished() && viewers.iter().all(|viewer| viewer.is_finished())) {
            next(&mut publish, Step::Other);
        }
        for viewer in viewers.into_iter().chain([held]) {
            if let Err(panic) = viewer.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    assert_eq!(origin.get("/live/x/v1/media.m3u8").status(), 404);
    assert_eq!(listed(origin), (names(&["v0"]), names(&["v0"])));
}

/// The publisher of the rendition that viewers watch leaves, and that of another one goes on.
#[test]
fn nobody_waits_for_a_rendition_whose_publisher_left() {
    let origin = Origin::start(SETTINGS);
    let mut stays = begin(&origin);
    let mut leaves = Some(Client::publish(origin.rtmp, "live/x?rendition=high"));
    leaves.as_mut().expect("it is there").send(&clip()[0]);
    assert_nobody_waits_for_it(&origin, |step| match (step, &mut leaves) {
        (Step::Both(second), Some(leaves)) => {
            send_second(&mut stays, second, ALL);
            for (time, message) in of_second(second) {
                if message.kind() == TagKind::Video {
                    leaves.tag(TagKind::Video, time, marked(&message.payload()));
                }
            }
        }
        (Step::Other(second), _) => send_second(&mut stays, second, ALL),
        _ => leaves = None,
    });
}

/// The publisher of two video tracks ends the one that viewers watch, and goes on with the other.
#[test]
fn nobody_waits_for_a_track_that_its_publisher_ended() {
    let origin = Origin::start(SETTINGS);
    let mut publisher = begin(&origin);
    let header = &clip()[..2].iter().find(|message| message.kind() == TagKind::Video);
    let header = header.expect("the clip has video").payload();
    publisher.tag(TagKind::Video, 3000, as_second_track(&header, 0));
    let mut last = 0;
    assert_nobody_waits_for_it(&origin, |step| match step {
        Step::Both(second) => {
            send_second(&mut publisher, second, ALL);
            for (time, message) in of_second(second) {
                if message.kind() == TagKind::Video {
                    let frame = as_second_track(&marked(&message.payload()), 1);
                    publisher.tag(TagKind::Video, time, frame);
                    last = time;
                }
            }
        }
        Step::End => publisher.tag(TagKind::Video, last, as_second_track(&header, 2)),
        Step::Other(second) => send_second(&mut publisher, second, ALL),
    });
}
