use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use media::{Codec, Sample, codec};

use super::*;
use crate::{PublisherInfo, Registry, Settings};

fn codecs() -> (Codec, Codec) {
    let video = codec::avc::Config::parse(testkit::avc_record(31).into()).unwrap();
    let audio = codec::aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap();
    (Codec::Avc(video), Codec::Aac(audio))
}

/// A stream of several renditions with keyframes one second apart.
struct Source {
    stream: Arc<Stream>,
    publishers: Vec<(crate::Publisher, i64)>,
    now: UnixMicros,
    registry: Registry,
}

impl Source {
    fn new(renditions: &[&str]) -> Self {
        let registry = Registry::new(Settings::default());
        let now = UnixMicros(1_700_000_000_000_000);
        let publish = |name: &&str| {
            let rendition = Some((*name).to_owned());
            let info = PublisherInfo { peer: None, protocol: "test", rendition };
            let mut publisher = registry.publish("x", info, now).unwrap();
            publisher.track(0, codecs().0, 1000, *b"und", now).unwrap();
            (publisher, 0)
        };
        let publishers = renditions.iter().map(publish).collect();
        Self { stream: registry.stream("x").unwrap(), publishers, now, registry }
    }

    /// Publishes a rendition up to this time, in frames of 1/25 s.
    fn publish(&mut self, rendition: usize, until: i64) {
        let (publisher, frame) = &mut self.publishers[rendition];
        for frame in std::mem::replace(frame, until)..until {
            let (dts, sync) = (frame * 40, frame % 25 == 0);
            let data = Bytes::from_static(&[0; 64]);
            let sample = Sample { dts, cts: 0, duration: 0, sync, data };
            let at = 1_700_000_000_000_000 + 1000 * u64::try_from(dts).unwrap();
            self.now.0 = self.now.0.max(at);
            publisher.sample(0, sample, self.now).unwrap();
        }
    }

    fn cursor(&self, rendition: &str, whole: bool) -> Cursor {
        let limits = Limits { queue: 1 << 20, patience: Duration::from_secs(10) };
        let choice = Choice { rendition: Some(rendition.to_owned()), max: None };
        Cursor::chosen(&self.stream, limits, choice, whole).unwrap()
    }
}

#[test]
fn the_segment_that_is_being_made_keeps_nobody_waiting_who_takes_them_whole() {
    let mut source = Source::new(&["one"]);
    source.publish(0, 60);
    let mut whole = source.cursor("one", true);
    while whole.poll(source.now).is_some() {}
    let parts = source.cursor("one", false);
    source.publish(0, 74);
    assert_eq!(whole.waiting(), 0);
    assert!(parts.waiting() > 0);
    // Two segments are complete. The newer one is the next for the viewer.
    source.publish(0, 160);
    assert!(whole.waiting() > 0);
    while whole.poll(source.now).is_some() {}
    assert_eq!(whole.waiting(), 0);
}

#[test]
fn parts_held_back_for_a_later_rendition_do_not_wait_for_the_viewer() {
    let mut source = Source::new(&["soon", "late"]);
    source.publish(0, 60);
    source.publish(1, 40);
    let mut cursor = source.cursor("soon", false);
    while cursor.poll(source.now).is_some() {}
    let late = source.stream.state().tracks[1].clone();
    assert!(late.is_called("late"));
    cursor.switch_to(&late);
    source.publish(0, 70);
    source.publish(1, 50);
    while cursor.poll(source.now).is_some() {}
    assert_eq!(cursor.waiting(), 0);
    cursor.stay();
    assert!(cursor.waiting() > 0, "it was held back");
    // It goes up to the other's keyframe and changes there.
    cursor.switch_to(&late);
    source.publish(0, 100);
    source.publish(1, 80);
    let mut switched = false;
    while let Some(next) = cursor.poll(source.now) {
        switched |= matches!(next, Next::Switched { gap: false });
    }
    assert!(switched);
}

#[test]
fn one_that_is_skipped_again_and_again_is_given_up() {
    let mut source = Source::new(&["one"]);
    source.publish(0, 30);
    let mut cursor = source.cursor("one", false);
    let began = source.now;
    let mut skips = 0;
    for second in 2.. {
        source.publish(0, second * 25 + 5);
        match cursor.skip(source.now) {
            Some(Next::Skipped) => skips += 1,
            other => {
                assert!(matches!(other, Some(Next::TooSlow)), "{other:?}");
                break;
            }
        }
        // A seek back in time does not count as keeping up.
        assert!(cursor.seek(0.0) && cursor.is_behind());
    }
    assert!(skips >= 10 && source.now.since(began) < Duration::from_secs(13), "{skips}");
}

fn start(next: Option<Next>) -> i64 {
    match next {
        Some(Next::Part { part, .. }) => part.start,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_postponed_part_comes_again_with_the_next_part() {
    let mut source = Source::new(&["one"]);
    source.publish(0, 30);
    let mut cursor = source.cursor("one", false);
    let first = start(cursor.poll(source.now));
    cursor.postpone();
    assert!(cursor.poll(source.now).is_none());
    let now = source.now;
    let waits =
        pin!(cursor.next(|| now)).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    assert!(waits, "nothing has changed");
    assert!(!cursor.is_at_edge());
    source.publish(0, 40);
    assert_eq!(start(Some(cursor.next(|| now).await)), first);
    // This comes while the caller tries the part, so there is no further wait for it.
    source.publish(0, 50);
    cursor.postpone();
    assert_eq!(start(Some(cursor.next(|| now).await)), first);
    let second = start(cursor.poll(source.now));
    assert!(second > first);
}

#[test]
fn one_whose_parts_are_postponed_is_skipped_and_given_up_as_a_slow_one() {
    let mut source = Source::new(&["one"]);
    source.publish(0, 30);
    let limits = Limits { queue: 4 << 10, patience: Duration::from_secs(10) };
    let mut cursor = source.cursor("one", false).with_limits(limits);
    let (mut skips, began) = (0, source.now);
    for frame in 31.. {
        match cursor.poll(source.now) {
            Some(Next::Part { .. }) => cursor.postpone(),
            Some(Next::Skipped) => skips += 1,
            Some(Next::TooSlow) => break,
            None => {}
            Some(other) => panic!("{other:?}"),
        }
        source.publish(0, frame);
    }
    assert!(skips > 0);
    let took = source.now.since(began);
    assert!((10..15).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test]
async fn a_viewer_of_audio_alone_gets_the_video_when_it_comes() {
    let registry = Registry::new(Settings::default());
    let mut now = UnixMicros(1_700_000_000_000_000);
    let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
    let mut publisher = registry.publish("x", info, now).unwrap();
    let (video, audio) = codecs();
    publisher.track(1, audio, 1000, *b"und", now).unwrap();
    let sample =
        |dts, sync| Sample { dts, cts: 0, duration: 0, sync, data: Bytes::from_static(&[0; 64]) };
    for frame in 0..60 {
        now.0 += 21_333;
        publisher.sample(1, sample(frame * 64 / 3, true), now).unwrap();
    }
    let limits = Limits { queue: 1 << 20, patience: Duration::from_secs(10) };
    let stream = registry.stream("x").unwrap();
    let mut cursor = Cursor::new(&stream, limits).unwrap();
    assert_eq!(cursor.tracks().map(|track| &*track.name).collect::<Vec<_>>(), ["a0"]);
    while cursor.poll(now).is_some() {}

    publisher.track(0, video, 1000, *b"und", now).unwrap();
    for frame in 0..30 {
        publisher.sample(0, sample(1280 + frame * 100 / 3, frame == 0), now).unwrap();
    }
    // Silence replaces the audio beside it, and may come first.
    let mut next = cursor.next(|| now).await;
    while let Next::Part { .. } = next {
        next = cursor.next(|| now).await;
    }
    assert!(matches!(next, Next::Tracks), "{next:?}");
    assert_eq!(cursor.tracks().map(|track| &*track.name).collect::<Vec<_>>(), ["v0", "a0"]);
    assert!(matches!(cursor.next(|| now).await, Next::Part { .. }));
}

/// A publisher leaves, and viewers of its rendition go on with another. They wait if that has no
/// keyframe yet, but get no time twice.
#[tokio::test]
async fn a_viewer_moved_from_a_lost_rendition_gets_no_time_twice() {
    for whole in [false, true] {
        let mut source = Source::new(&["one", "two"]);
        source.publish(0, 70);
        source.publish(1, 60);
        let mut cursor = source.cursor("one", whole);
        drop(source.publishers.remove(0));
        let (mut end, mut moved) = (0, false);
        for until in (60..600).step_by(5) {
            source.publish(0, until);
            source.registry.sweep(source.now);
            let mut next = cursor.poll(source.now);
            if next.is_none() && cursor.has_better() {
                next = cursor.choose_again();
            }
            while let Some(found) = next {
                match found {
                    Next::Part { segment, part, .. } => {
                        assert!(part.start >= end, "{} after {end}", part.start);
                        assert!(!moved || part.independent, "begins without a keyframe");
                        moved = false;
                        end = if whole {
                            segment.end()
                        } else {
                            part.start + i64::from(part.duration)
                        };
                    }
                    Next::Switched { .. } => moved = true,
                    other => panic!("{other:?} at {until}"),
                }
                next = cursor.poll(source.now);
            }
        }
        assert!(cursor.tracks().all(|track| track.is_called("two")));
        assert!(end > 90_000 * 20, "it goes on: {end}");
    }
}

#[test]
fn one_that_went_back_is_not_slow_until_it_has_caught_up() {
    let mut source = Source::new(&["one"]);
    source.publish(0, 500);
    // Less than two seconds of media.
    let limits = Limits { queue: 4 << 10, patience: Duration::from_secs(10) };
    let mut cursor = source.cursor("one", false).with_limits(limits);
    assert!(cursor.seek(0.0));
    let (mut taken, mut next) = (0, None);
    // Takes this many frames in all, and asserts that none are left out.
    let mut take = |cursor: &mut Cursor, now, frames: i64| {
        while taken < frames {
            let Some(Next::Part { part, segment, .. }) = cursor.poll(now) else {
                panic!("no part after frame {taken}");
            };
            assert_eq!(part.start, next.unwrap_or(part.start));
            next = Some(part.start + i64::from(part.duration));
            taken += i64::from(part.duration) * 25 / i64::from(segment.header.track.timescale);
        }
    };
    // For 40 s it takes media as fast as they come, so it stays 20 s behind: for longer than the
    // viewer of a slow link may stay behind.
    for second in 1..=40 {
        source.publish(0, 500 + second * 25);
        take(&mut cursor, source.now, second * 25);
        assert!(!cursor.is_behind());
    }
    assert!(cursor.waiting() > limits.queue, "{}", cursor.waiting());
    // It catches up. From then on, media that wait for it count.
    take(&mut cursor, source.now, 1490);
    while cursor.poll(source.now).is_some() {}
    source.publish(0, 1600);
    assert!(matches!(cursor.poll(source.now), Some(Next::Skipped)));
}
