//! Follows a track part by part, for a consumer of all its parts: the ladder. A viewer uses a
//! [`Cursor`](crate::cursor::Cursor) instead, which skips to stay near live. Other servers get all
//! tracks of a stream by [`Changes`](crate::mirror::Changes), which loses nothing.

use std::sync::Arc;

use tokio::sync::watch;

use crate::track::Track;
use crate::window::{Part, PartIndex, Segment, Window};

/// The next event of a track.
#[derive(Debug)]
pub enum Next {
    /// A part, and the segment it belongs to.
    Part(Arc<Segment>, Arc<Part>),
    /// The follower was too slow and parts are skipped. The next part begins a segment, or starts
    /// with a keyframe.
    Skipped,
    /// The track is over.
    Over,
}

/// Follows one track. Each part comes once and in order.
#[derive(Debug)]
pub struct TrackFollower {
    windows: watch::Receiver<Arc<Window>>,
    /// The next part.
    next: Option<PartIndex>,
    /// Parts more than this many seconds behind are skipped.
    most_behind: i64,
}

impl TrackFollower {
    /// Starts at the newest segment. With `made`, a decode time of the track, it starts at the
    /// first segment that begins there or later, unless that is too long ago: so nothing after
    /// `made` is missed. Parts more than `most_behind` seconds behind are skipped.
    pub fn from_newest(track: &Track, made: Option<i64>, most_behind: i64) -> Self {
        let windows = track.subscribe();
        let next = {
            let window = windows.borrow();
            let begins =
                |segment: &&Arc<Segment>| segment.parts.first().is_some_and(|p| p.independent);
            let missed = made.and_then(|made| {
                let due = |segment: &Segment| {
                    let first = segment.parts.first().and_then(|part| part.samples.first());
                    first.map_or(segment.start, |sample| sample.dts)
                };
                let mut after = window.all().filter(|segment| due(segment) >= made);
                after.find(|segment| {
                    let behind = seconds_behind(&window, segment.start, segment);
                    begins(segment) && behind <= most_behind
                })
            });
            let newest = || window.newest().filter(begins);
            missed.or_else(newest).map(|segment| (segment.msn, 0)).or(window.newest_independent())
        };
        Self { windows, next, most_behind }
    }

    /// Waits for the next part.
    pub async fn next(&mut self) -> Next {
        loop {
            if let Some(next) = self.take() {
                return next;
            }
            if self.windows.changed().await.is_err() {
                return Next::Over;
            }
        }
    }

    /// The next part or event, if there is one now. Later changes of the window wake
    /// [`Self::next`].
    pub fn take(&mut self) -> Option<Next> {
        let window = self.windows.borrow_and_update().clone();
        self.look(&window).or_else(|| window.ended.then_some(Next::Over))
    }

    fn look(&mut self, window: &Window) -> Option<Next> {
        let mut next = self.next.or_else(|| window.newest_independent())?;
        if window.has_lost(next) {
            return self.skip(window);
        }
        let (segment, part) = window.part(&mut next)?;
        let behind = seconds_behind(window, part.start, segment);
        if behind > self.most_behind
            && let Some(skipped) = self.skip(window)
        {
            return Some(skipped);
        }
        self.next = Some((next.0, next.1 + 1));
        Some(Next::Part(Arc::clone(segment), Arc::clone(part)))
    }

    /// Goes on at the newest keyframe if that is ahead.
    fn skip(&mut self, window: &Window) -> Option<Next> {
        self.next = Some(window.newest_independent().filter(|to| Some(*to) > self.next)?);
        Some(Next::Skipped)
    }
}

fn seconds_behind(window: &Window, start: i64, segment: &Segment) -> i64 {
    let timescale = i64::from(segment.header.track.timescale);
    window.newest().map_or(0, |newest| (newest.end() - start - 1).div_euclid(timescale) + 1)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use media::codec::avc;
    use media::{Codec, Sample};

    use super::*;
    use crate::{Publisher, PublisherInfo, Registry, Settings, UnixMicros};

    /// A stream of 30 frames a second with a keyframe every second.
    struct Scene {
        publisher: Publisher,
        now: UnixMicros,
        frames: i64,
    }

    impl Scene {
        fn new() -> Self {
            let now = UnixMicros(1_700_000_000_000_000);
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let registry = Registry::new(Settings::default());
            let mut publisher = registry.publish("x", info, now).unwrap();
            let codec = Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap());
            publisher.track(0, codec, 90_000, *b"und", now).unwrap();
            Self { publisher, now, frames: 0 }
        }

        fn publish(&mut self, seconds: i64) -> Arc<Track> {
            for _ in 0..seconds * 30 {
                self.now.0 += 33_333;
                let sync = self.frames % 30 == 0;
                let (dts, data) = (self.frames * 3000, Bytes::from_static(&[0; 64]));
                let sample = Sample { dts, cts: 6000, duration: 0, sync, data };
                self.publisher.sample(0, sample, self.now).unwrap();
                self.frames += 1;
            }
            self.publisher.stream().track("v0").unwrap()
        }
    }

    /// Start times of the available parts, in seconds; `None` for a skip.
    fn take(source: &mut TrackFollower) -> Vec<Option<f64>> {
        let mut taken = Vec::new();
        while let Some(next) = source.take() {
            taken.push(match next {
                // A part's first frame is due when its decoding ends.
                Next::Part(_, part) => Some(part.samples[0].dts as f64 / 90_000.0),
                Next::Skipped | Next::Over => None,
            });
        }
        taken
    }

    #[test]
    fn parts_come_from_the_newest_segments_start_each_once() {
        let mut scene = Scene::new();
        // The stream's time starts at 1 s; segments last two.
        let mut source = TrackFollower::from_newest(&scene.publish(8), None, 10);
        let first = take(&mut source);
        assert_eq!(first.first(), Some(&Some(7.0)));
        scene.publish(2);
        let then = take(&mut source);
        let all: Vec<f64> = first.into_iter().chain(then).map(Option::unwrap).collect();
        assert!(all.len() >= 19, "{all:?}");
        for (at, start) in all.iter().enumerate() {
            assert!((start - (7.0 + at as f64 / 5.0)).abs() < 0.001, "{all:?}");
        }
    }

    #[test]
    fn after_a_restart_nothing_is_missed_that_is_not_long_ago() {
        let mut scene = Scene::new();
        let track = scene.publish(30);
        let from = |made: i64| {
            take(&mut TrackFollower::from_newest(&track, Some(made * 90_000), 10))[0].unwrap()
        };
        assert_eq!(from(24), 25.0, "the first segment after it");
        assert_eq!(from(25), 25.0);
        assert_eq!(from(5), 21.0, "too long ago");
        // No segment after it has begun.
        assert_eq!(from(30), 29.0);
    }

    #[test]
    fn a_slow_follower_skips_to_a_keyframe() {
        let mut scene = Scene::new();
        let track = scene.publish(3);
        let mut source = TrackFollower::from_newest(&track, None, 10);
        assert_eq!(take(&mut source).first(), Some(&Some(3.0)));
        scene.publish(20);
        let taken = take(&mut source);
        let [None, Some(first), ..] = taken[..] else { panic!("{taken:?}") };
        assert!(first >= 22.0, "{first}");
        assert!(taken[1..].iter().all(Option::is_some), "{taken:?}");
    }
}
