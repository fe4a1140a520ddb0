//! A publisher that returns without its audio, and the viewers that watch meanwhile.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use media::flv::{Metadata, TagKind};
use protocol::rtmp::ClientEvent;
use serde_json::Value;
use testkit::http::{Client as Http, get};

use testkit::push;
use testkit::rtmp::Client;

use crate::support::{LIMIT, Origin, Playlist, clip};
use crate::viewers::{self, FLV_HEADER, Media};

const STREAM: &str = "live/x";

/// The longest that any viewer watches.
const WHOLE: Duration = Duration::from_secs(180);

/// Progress of the publishers.
#[derive(Default)]
struct Progress {
    /// Number of viewers that have media of the first publisher.
    watching: AtomicUsize,
    /// The second publisher has published for a second, without audio.
    returned: AtomicBool,
    /// The first publisher's audio track has ended.
    ended: AtomicBool,
}

impl Progress {
    fn has_returned(&self) -> bool {
        self.returned.load(Ordering::Acquire)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn watch(&self) {
        self.watching.fetch_add(1, Ordering::AcqRel);
    }
}

/// Watches the media that `next` gives: audio and video at first, then video until some time after
/// the audio has ended.
fn watch(who: &str, progress: &Progress, mut next: impl FnMut() -> Option<Media>) {
    let begun = Instant::now();
    let mut next = || {
        assert!(begun.elapsed() < WHOLE, "{who}: the video does not go on");
        let media = next().unwrap_or_else(|| panic!("{who}: it is over"));
        assert!(media.track.is_none_or(|track| track <= 2), "track {:?}", media.track);
        (media.kind, media.time)
    };
    let mut seen = Vec::new();
    while !(seen.contains(&TagKind::Video) && seen.contains(&TagKind::Audio)) {
        seen.push(next().0);
    }
    progress.watch();
    let mut from = None;
    loop {
        let (kind, time) = next();
        if kind == TagKind::Video && progress.has_ended() && time > *from.get_or_insert(time) + 2.0
        {
            return;
        }
    }
}

fn watch_mp4(origin: &Origin, progress: &Progress) {
    let mut http = viewers::ask(origin, "live.mp4", WHOLE);
    let mut body = viewers::body(&mut http);
    watch("live.mp4", progress, || viewers::next_of_mp4(&mut body));
}

fn watch_flv(origin: &Origin, progress: &Progress) {
    let mut http = viewers::ask(origin, "live.flv", WHOLE);
    let mut body = viewers::body(&mut http);
    viewers::read(&mut body, FLV_HEADER).expect("the file's header");
    watch("live.flv", progress, || viewers::next_of_flv(&mut body));
}

fn watch_rtmp(origin: &Origin, progress: &Progress) {
    let mut player = Client::play(origin.rtmp, STREAM);
    watch("RTMP", progress, || viewers::next_of_rtmp(&mut player));
}

fn watch_push(origin: &Origin, progress: &Progress) {
    let mut viewer = push::Client::connect(origin.http, "/live/x/push");
    let goes_on = |event: Value| {
        assert!(event["event"] != "error" && event["event"] != "end", "{event}");
    };
    watch("push", progress, || viewers::next_of_push(&mut viewer, goes_on));
}

/// An HLS player of both tracks. It asks for each segment of either track as soon as it is known,
/// and needs both to go on.
fn watch_hls(origin: &Origin, progress: &Progress) {
    let mut http = Http::connect(origin.http, LIMIT).expect("the server listens");
    let mut playlist = |track: &str, query: &str| {
        let path = format!("/live/x/{track}/media.m3u8{query}");
        let answer = http.get(&path, &[]);
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        let playlist = Playlist(answer.text().to_owned());
        assert!(!playlist.0.contains("#EXT-X-ENDLIST"), "{path}: {}", playlist.0);
        playlist
    };
    let tracks = ["v0", "a0"];
    let mut open = tracks.map(|track| playlist(track, "").open_msn());
    progress.watch();
    let (mut from, begun) = (None, Instant::now());
    // Four segments of both tracks from the second publisher.
    while from.is_none_or(|from| open.iter().any(|open| *open < from + 4)) {
        assert!(begun.elapsed() < WHOLE, "segments {open:?}");
        for (track, open) in tracks.iter().zip(&mut open) {
            let next = playlist(track, &format!("?_HLS_msn={open}")).open_msn();
            assert!(next > *open, "{track}: {next} after {open}");
            *open = next;
        }
        if progress.has_returned() {
            from.get_or_insert(open[0].max(open[1]));
        }
    }
}

/// The newest entries of a manifest.
struct Listed {
    /// The element of its newest period.
    period: String,
    /// Starts of the last video segment and of the last audio segment of that period, if there are
    /// any yet.
    newest: [Option<u64>; 2],
}

fn manifest(origin: &Origin) -> Listed {
    let answer = origin.get("/live/x/manifest.mpd");
    assert_eq!(answer.status(), 200, "{answer:?}");
    let text = answer.text();
    let period = text.rsplit("<Period ").next().expect("a period");
    let newest = ["video", "audio"].map(|kind| newest_of(period, kind));
    let period = period.split('>').next().expect("an end").to_owned();
    Listed { period, newest }
}

/// Start of the last segment of this kind of media in a period of a manifest.
fn newest_of(period: &str, kind: &str) -> Option<u64> {
    let set = period.split(&format!("contentType=\"{kind}\"")).nth(1)?;
    let set = set.split("</AdaptationSet>").next().expect("the set");
    let (mut time, mut newest) = (0, None);
    for segment in set.split("<S ").skip(1) {
        let segment = segment.split('>').next().expect("an end");
        let value = |name: &str| {
            let at = segment.split([' ', '/']).find_map(|word| word.strip_prefix(name));
            at.map(|value| value.trim_matches('"').parse::<u64>().expect("a number"))
        };
        time = value("t=").unwrap_or(time);
        let (lasts, more) = (value("d=").expect("a duration"), value("r=").unwrap_or(0));
        newest = Some(time + lasts * more);
        time += lasts * (more + 1);
    }
    newest
}

/// Whether the newest period has audio.
fn period_has_audio(manifest: &str) -> bool {
    let period = manifest.rsplit("<Period ").next();
    period.is_some_and(|period| period.contains("contentType=\"audio\""))
}

/// A DASH player that needs both tracks to go on, as dash.js does. It plays four segments of each
/// from the second publisher.
fn watch_dash(origin: &Origin, progress: &Progress) {
    let before = manifest(origin);
    assert!(before.newest.iter().all(Option::is_some));
    progress.watch();
    let (mut played, begun) = ([const { Vec::new() }; 2], Instant::now());
    while played.iter().any(|played| played.len() < 4) {
        assert!(begun.elapsed() < WHOLE, "{played:?}");
        let now = manifest(origin);
        // Segments that are listed of the publisher that left may never come.
        let is_new = now.period != before.period;
        for ((track, played), newest) in ["v0", "a0"].iter().zip(&mut played).zip(now.newest) {
            if let Some(time) = newest.filter(|time| is_new && !played.contains(time)) {
                let path = format!("/live/x/{track}/t{time}.m4s");
                let segment = get(origin.http, &path);
                assert_eq!(segment.status(), 200, "{path}: {segment:?}");
                played.push(time);
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Publishes the clip's messages of these kinds in real time, repeatedly, while `goes_on` allows
/// it.
fn publish(publisher: &mut Client, kinds: &[TagKind], mut goes_on: impl FnMut(Duration) -> bool) {
    let begun = Instant::now();
    let (headers, samples) = clip().split_at(2);
    let wanted = |message: &&media::flv::Message| kinds.contains(&message.kind());
    headers.iter().filter(wanted).for_each(|header| publisher.send(header));
    for turn in 0.. {
        for message in samples.iter().filter(wanted) {
            let time = turn * 16_000 + message.timestamp();
            let due = Duration::from_millis(time.into());
            thread::sleep(due.saturating_sub(begun.elapsed()));
            if !goes_on(due) {
                return;
            }
            publisher.tag(message.kind(), time, message.payload());
        }
    }
}

/// A publisher returns without its audio. A viewer of one file with both goes on with the video,
/// first with silence, then without audio. An HLS or DASH player of two tracks would wait for
/// audio, so it gets silence for as long as it asks. Later viewers are offered no audio, over DASH
/// once nobody asks for it any more.
#[test]
fn a_publisher_that_returns_without_its_audio_keeps_no_viewer_waiting() {
    let origin = Origin::start(
        "[live]\nsegment_target = \"500ms\"\nreconnect = \"20s\"\n[push]\nping_interval = \"5m\"\n",
    );
    let (origin, progress) = (&origin, &Progress::default());
    thread::scope(|scope| {
        let mut first = Client::publish(origin.rtmp, STREAM);
        let viewers: &[fn(&Origin, &Progress)] =
            &[watch_mp4, watch_flv, watch_rtmp, watch_push, watch_hls, watch_dash];
        let begun = Instant::now();
        let mut watching = Vec::new();
        publish(&mut first, &[TagKind::Video, TagKind::Audio], |due| {
            assert!(begun.elapsed() < 3 * LIMIT, "not all have begun to watch");
            // By now everything that the viewers ask for is there.
            if watching.is_empty() && due > Duration::from_secs(3) {
                let start = |&viewer: &fn(&Origin, &Progress)| {
                    scope.spawn(move || viewer(origin, progress))
                };
                watching = viewers.iter().map(start).collect();
            }
            progress.watching.load(Ordering::Acquire) < viewers.len()
        });
        drop(first);
        // The name is free once the server has seen the connection's end.
        origin.get_until("/api/v1/streams/live/x", LIMIT, |r| r.text().contains("offline"));

        let mut second = Client::publish(origin.rtmp, STREAM);
        let newcomers = scope.spawn(move || {
            while !progress.has_returned() {
                assert!(begun.elapsed() < WHOLE, "nobody returned");
                thread::sleep(Duration::from_millis(20));
            }
            let no_audio = |answer: &testkit::http::Response| {
                answer.status() == 200 && !answer.text().contains("TYPE=AUDIO")
            };
            origin.get_until("/live/x/index.m3u8", LIMIT, no_audio);
            assert_no_audio_is_offered(origin);
            origin.get_until("/live/x/manifest.mpd", WHOLE, |answer| {
                answer.status() == 200 && !period_has_audio(answer.text())
            });
        });
        publish(&mut second, &[TagKind::Video], |due| {
            progress.returned.fetch_or(due > Duration::from_secs(1), Ordering::AcqRel);
            if !progress.has_ended() && origin.log().contains("track ended: nobody publishes it") {
                progress.ended.store(true, Ordering::Release);
            }
            begun.elapsed() < WHOLE
                && !(newcomers.is_finished() && watching.iter().all(|viewer| viewer.is_finished()))
        });
        for viewer in watching.into_iter().chain([newcomers]) {
            if let Err(panic) = viewer.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// Asserts that viewers who come now are offered no audio.
fn assert_no_audio_is_offered(origin: &Origin) {
    let multivariant = origin.get("/live/x/index.m3u8");
    assert!(!multivariant.text().contains("mp4a"), "{multivariant:?}");
    let begin = |file: &str, size: usize| {
        let mut http = viewers::ask(origin, file, LIMIT);
        viewers::read(&mut viewers::body(&mut http), size).expect("it goes on")
    };
    let count = |bytes: &[u8], name: &[u8]| bytes.windows(4).filter(|four| *four == name).count();
    let mp4 = begin("live.mp4", 2000);
    assert_eq!((count(&mp4, b"trak"), count(&mp4, b"mp4a")), (1, 0));
    // TypeFlagsVideo only (FLV 10.1, annex E.2).
    assert_eq!(begin("live.flv", 5), *b"FLV\x01\x01");

    let mut viewer = push::Client::connect(origin.http, "/live/x/push");
    let hello = viewer.next().expect("a hello").event();
    assert!(hello["audio"].is_null() && hello["rendition"] == "v0", "{hello}");

    let mut player = Client::play(origin.rtmp, STREAM);
    let mut frames = 0;
    while frames < 40 {
        match player.next().expect("it goes on") {
            ClientEvent::Video { .. } => frames += 1,
            ClientEvent::Audio { .. } => panic!("audio after {frames} frames"),
            ClientEvent::Metadata { payload, .. } => {
                let metadata = Metadata::parse(&payload).expect("AMF0").unwrap_or_default();
                assert_eq!(metadata.audio_codec, None, "{metadata:?}");
            }
            _ => {}
        }
    }
}
