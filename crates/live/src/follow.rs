//! Follows a stream part by part, for consumers of all its parts: renditions, recordings, other
//! servers. A viewer uses a [`Cursor`](crate::cursor::Cursor) instead, which skips to stay near
//! live.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;

use crate::info::Status;
use crate::stream::{State, Stream};
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
    /// Parts more than this many seconds behind are skipped. If `None`, only parts that have left
    /// the window are skipped.
    most_behind: Option<i64>,
}

impl TrackFollower {
    /// Starts at the oldest segment in the window. Nothing is lost as long as parts are taken
    /// before they leave the window.
    pub fn from_oldest(track: &Track) -> Self {
        let windows = track.subscribe();
        let next = windows.borrow().all().next().map(|segment| (segment.msn, 0));
        Self { windows, next, most_behind: None }
    }

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
        Self { windows, next, most_behind: Some(most_behind) }
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
        let mut next = self.next.or_else(|| self.anew(window))?;
        if window.has_lost(next) {
            return self.skip(window);
        }
        let (segment, part) = window.part(&mut next)?;
        let behind = seconds_behind(window, part.start, segment);
        if self.most_behind.is_some_and(|most| behind > most)
            && let Some(skipped) = self.skip(window)
        {
            return Some(skipped);
        }
        self.next = Some((next.0, next.1 + 1));
        Some(Next::Part(Arc::clone(segment), Arc::clone(part)))
    }

    /// Goes on elsewhere if that is ahead.
    fn skip(&mut self, window: &Window) -> Option<Next> {
        self.next = Some(self.anew(window).filter(|to| Some(*to) > self.next)?);
        Some(Next::Skipped)
    }

    /// The place to begin anew: the newest keyframe or, for a follower that must lose nothing, the
    /// oldest segment.
    fn anew(&self, window: &Window) -> Option<PartIndex> {
        match self.most_behind {
            Some(_) => window.newest_independent(),
            None => window.all().next().map(|segment| (segment.msn, 0)),
        }
    }
}

fn seconds_behind(window: &Window, start: i64, segment: &Segment) -> i64 {
    let timescale = i64::from(segment.header.track.timescale);
    window.newest().map_or(0, |newest| (newest.end() - start - 1).div_euclid(timescale) + 1)
}

/// The next event of a stream.
#[derive(Debug)]
pub enum Event {
    /// A new track.
    Began(Arc<Track>),
    /// An event of a track that has begun. [`Next::Over`] is its last.
    Track(Arc<Track>, Next),
    /// The stream and all its tracks are over.
    Over,
}

/// Follows all tracks of a stream, including later ones, from the oldest segments in their windows
/// on. Each track's parts come once and in order. If parts of several tracks are at hand, the
/// earliest in time comes first.
#[derive(Debug)]
pub struct Follower {
    state: watch::Receiver<Arc<State>>,
    tracks: Vec<(Arc<Track>, TrackFollower)>,
    /// Tracks that are over, as long as the stream still names them.
    over: Vec<Arc<Track>>,
}

impl Follower {
    /// Begins to follow a stream.
    pub fn new(stream: &Stream) -> Self {
        Self { state: stream.subscribe(), tracks: Vec::new(), over: Vec::new() }
    }

    /// Waits for the next event.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.take() {
                return event;
            }
            self.changed().await;
        }
    }

    /// The next event, if there is one now.
    fn take(&mut self) -> Option<Event> {
        let state = self.state.borrow_and_update().clone();
        self.over.retain(|track| state.tracks.iter().any(|other| Arc::ptr_eq(other, track)));
        let known = |track: &&Arc<Track>| {
            let followed = self.tracks.iter().map(|(track, _)| track);
            followed.chain(&self.over).any(|other| Arc::ptr_eq(other, track))
        };
        if let Some(track) = state.tracks.iter().find(|track| !known(track)) {
            self.tracks.push((Arc::clone(track), TrackFollower::from_oldest(track)));
            return Some(Event::Began(Arc::clone(track)));
        }
        let due = |follower: &TrackFollower| {
            let window = follower.windows.borrow();
            let (msn, at) = follower.next.or_else(|| Some((window.all().next()?.msn, 0)))?;
            let segment = window.segment(msn).or_else(|| window.all().next())?;
            let start = segment.parts.get(at).map_or(segment.end(), |part| part.start);
            Some(start as f64 / f64::from(segment.header.track.timescale))
        };
        let mut order: Vec<_> = (0..self.tracks.len()).collect();
        let times: Vec<_> = self.tracks.iter().map(|(_, follower)| due(follower)).collect();
        order.sort_by(|a, b| {
            let time = |at: &usize| times.get(*at).copied().flatten().unwrap_or(f64::INFINITY);
            time(a).total_cmp(&time(b))
        });
        for at in order {
            let (track, follower) = &mut self.tracks[at];
            let Some(next) = follower.take() else { continue };
            let track = Arc::clone(track);
            if let Next::Over = next {
                self.tracks.remove(at);
                self.over.push(Arc::clone(&track));
            }
            return Some(Event::Track(track, next));
        }
        (state.status == Status::Ended && self.tracks.is_empty()).then_some(Event::Over)
    }

    /// Waits until something has changed since the last [`Self::take`].
    async fn changed(&mut self) {
        let mut state = pin!(self.state.changed());
        let windows = self.tracks.iter_mut().map(|(_, follower)| follower.windows.changed());
        let mut windows: Vec<_> = windows.map(Box::pin).collect();
        poll_fn(|cx| {
            let changed = windows.iter_mut().any(|window| window.as_mut().poll(cx).is_ready());
            if changed || state.as_mut().poll(cx).is_ready() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
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
        registry: Registry,
        publisher: Option<Publisher>,
        now: UnixMicros,
        frames: i64,
    }

    impl Scene {
        fn new() -> Self {
            let registry = Registry::new(Settings::default());
            let now = UnixMicros(1_700_000_000_000_000);
            let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
            let mut publisher = registry.publish("x", info, now).unwrap();
            publisher.track(0, Self::codec(), 90_000, *b"und", now).unwrap();
            Self { registry, publisher: Some(publisher), now, frames: 0 }
        }

        fn codec() -> Codec {
            Codec::Avc(avc::Config::parse(testkit::avc_record(31).into()).unwrap())
        }

        fn stream(&self) -> Arc<Stream> {
            self.registry.stream("x").unwrap()
        }

        fn publish(&mut self, seconds: i64) -> Arc<Track> {
            let publisher = self.publisher.as_mut().unwrap();
            for _ in 0..seconds * 30 {
                self.now.0 += 33_333;
                let sync = self.frames % 30 == 0;
                let (dts, data) = (self.frames * 3000, Bytes::from_static(&[0; 64]));
                let sample = Sample { dts, cts: 6000, duration: 0, sync, data };
                publisher.sample(0, sample, self.now).unwrap();
                self.frames += 1;
            }
            publisher.stream().track("v0").unwrap()
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

    /// The available events of a stream, each as a short text.
    fn events(follower: &mut Follower) -> Vec<String> {
        let told = |event| match event {
            Event::Began(track) => format!("{} began", track.name),
            Event::Track(track, Next::Part(segment, part)) => {
                let at = segment.parts.iter().position(|other| Arc::ptr_eq(other, &part)).unwrap();
                format!("{} {}.{at}", track.name, segment.msn)
            }
            Event::Track(track, Next::Skipped) => format!("{} skipped", track.name),
            Event::Track(track, Next::Over) => format!("{} over", track.name),
            Event::Over => "over".to_owned(),
        };
        let mut all = Vec::new();
        while let Some(event) = follower.take() {
            all.push(told(event));
            if all.last().unwrap() == "over" {
                break;
            }
        }
        all
    }

    #[tokio::test]
    async fn a_stream_is_followed_to_its_end_and_with_what_comes_later() {
        let mut scene = Scene::new();
        let mut follower = Follower::new(&scene.stream());
        scene.publish(4);
        let mut all = events(&mut follower);
        assert_eq!(all.first().unwrap(), "v0 began");
        // A second rendition by a publisher of its own, at the same times.
        let rendition = Some("low".to_owned());
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        let mut second = scene.registry.publish("x", info, scene.now).unwrap();
        second.track(0, Scene::codec(), 90_000, *b"und", scene.now).unwrap();
        for frame in scene.frames..scene.frames + 120 {
            let data = Bytes::from_static(&[0; 64]);
            let sync = frame % 30 == 0;
            let sample = Sample { dts: frame * 3000, cts: 6000, duration: 0, sync, data };
            second.sample(0, sample, scene.now).unwrap();
        }
        scene.publish(4);
        all.extend(events(&mut follower));
        assert!(all.contains(&"v1 began".to_owned()), "{all:?}");
        // A follower that waits gets the next part.
        let waits = tokio::spawn(async move { (follower.next().await, follower) });
        tokio::task::yield_now().await;
        scene.publish(1);
        let (event, mut follower) = waits.await.unwrap();
        let Event::Track(track, Next::Part(..)) = event else { panic!("{event:?}") };
        assert_eq!(track.name, "v0");
        drop((scene.publisher.take(), second));
        scene.registry.sweep(scene.now);
        scene.registry.sweep(scene.now.after(2 * Settings::default().reconnect));
        let end = events(&mut follower);
        let over = |name: &str| end.iter().position(|event| event == name);
        assert!(over("v0 over").is_some() && over("v1 over").is_some(), "{end:?}");
        assert_eq!(end.last().unwrap(), "over");
        // Each part once, in order.
        let mut parts: Vec<Vec<u64>> = Vec::new();
        for event in all.iter().filter_map(|event| event.strip_prefix("v0 ")) {
            if let Some((msn, part)) = event.split_once('.') {
                parts.push(vec![msn.parse().unwrap(), part.parse().unwrap()]);
            }
        }
        assert!(parts.len() > 35 && parts.windows(2).all(|two| two[0] < two[1]), "{parts:?}");
    }

    #[test]
    fn a_follower_of_everything_is_told_of_lost_parts() {
        let mut scene = Scene::new();
        let track = scene.publish(3);
        let mut follower = TrackFollower::from_oldest(&track);
        assert_eq!(take(&mut follower).first(), Some(&Some(1.0)));
        // Far more than a window holds.
        scene.publish(300);
        let taken = take(&mut follower);
        assert_eq!(taken.iter().filter(|part| part.is_none()).count(), 1);
        assert!(taken[0].is_none() && taken.len() > 100, "{taken:?}");
    }
}
