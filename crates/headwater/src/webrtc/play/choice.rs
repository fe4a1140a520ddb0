//! Chooses the rendition of a stream for a viewer, by the rules of push (`protocol::push::abr`).
//!
//! `link` has what the rule sees. On the highest rendition packets are not numbered, and their viewers send no
//! feedback on them: there is no more to find out. Receiver reports come anyway, and tell enough to go down.

use std::sync::Arc;

use live::{State, Stream, Track, UnixMicros};
use media::Kind;
use protocol::push::abr::{self, Decision, Evidence, Rule};
use str0m::format::Codec;
use str0m::rtp::rtcp::ReceptionReport;
use tokio::time::Instant;

use super::feed::has_b_frames;
use super::link::Link;
use crate::webrtc::offer::codecs::carried;
use crate::webrtc::send::source::Numbers;

/// How often to renew the list of renditions to choose from, in microseconds.
const RENEWED: u64 = 5_000_000;

/// A rendition.
struct Rendition {
    track: Arc<Track>,
    /// Mean bits per second.
    bits: u64,
}

/// The renditions that a viewer may get, by rising bit rate, and what is known of its link.
pub(in crate::webrtc) struct Choice {
    stream: Arc<Stream>,
    /// The codec that the session has.
    codec: Codec,
    /// The rendition that is in no list: a companion's.
    made: Option<Arc<Track>>,
    renditions: Vec<Rendition>,
    /// The one that the viewer gets.
    at: usize,
    rule: Evidence,
    began: Instant,
    renewed: u64,
    link: Link,
    /// Whether packets are numbered: there is a higher rendition.
    is_numbered: bool,
    /// Tracks that ended.
    over: Vec<Arc<Track>>,
}

/// The tracks of a stream in a codec that are to choose from, by rising bit rate. `made` is one more.
fn renditions(state: &State, codec: Codec, made: Option<&Arc<Track>>) -> Vec<Rendition> {
    let usable = |track: &&Arc<Track>| {
        track.kind == Kind::Video
            && track.is_present()
            && track.part_limit().is_some()
            && carried(&track.header().track.codec) == Some(codec)
            && !has_b_frames(track)
    };
    let rate = |track: &Arc<Track>| Some(track.bitrate()?.0);
    let rated = state.tracks.iter().filter(usable).filter_map(|track| Some((track, rate(track)?)));
    // What a companion makes is in no window, so its rate is taken to be that of the video that it is made of: the
    // first one of the codec (`webrtc::signal`).
    let is_source = |track: &&Arc<Track>| {
        track.is_present() && carried(&track.header().track.codec) == Some(codec)
    };
    let of_source = || rate(state.tracks.iter().find(is_source)?);
    let made = made.and_then(|track| Some((track, of_source()?)));
    let mut renditions: Vec<_> = rated
        .chain(made)
        .map(|(track, bits)| Rendition { track: Arc::clone(track), bits })
        .collect();
    renditions.sort_by_key(|rendition| rendition.bits);
    renditions
}

/// How many tracks of video a stream has, in all codecs.
fn videos(state: &State) -> usize {
    state.tracks.iter().filter(|track| track.kind == Kind::Video).count()
}

/// Whether viewers of a stream in a codec have something to choose from. `made` is whether a companion makes one
/// more.
pub(in crate::webrtc) fn has_several(state: &State, codec: Codec, made: bool) -> bool {
    // Most streams have one track of video, and nothing is to be done for their viewers.
    videos(state) > 1 && renditions(state, codec, None).len() + usize::from(made) > 1
}

/// The first rendition for a viewer whose link is not known yet. `otherwise` is the only one, if nothing is
/// to choose from.
pub(in crate::webrtc) fn begin(
    state: &State,
    made: Option<&Arc<Track>>,
    otherwise: Arc<Track>,
) -> Arc<Track> {
    if videos(state) < 2 {
        return otherwise;
    }
    let Some(codec) = carried(&otherwise.header().track.codec) else { return otherwise };
    let renditions = renditions(state, codec, made);
    let bits: Vec<_> = renditions.iter().map(|rendition| rendition.bits).collect();
    let begins = renditions.into_iter().nth(abr::start(&bits));
    begins.map_or(otherwise, |rendition| rendition.track)
}

impl Choice {
    /// Chooses for a viewer of a codec from `now` on. `made` is the video that a companion makes for it. `numbers`
    /// numbers its packets, if it tells which of them came.
    pub(in crate::webrtc) fn new(
        stream: Arc<Stream>,
        codec: Codec,
        made: Option<Arc<Track>>,
        numbers: Option<Numbers>,
        now: Instant,
    ) -> Self {
        Self {
            stream,
            codec,
            made,
            renditions: Vec::new(),
            at: 0,
            rule: Evidence::default(),
            began: now,
            renewed: 0,
            link: Link::new(numbers),
            is_numbered: false,
            over: Vec::new(),
        }
    }

    /// Numbers the packets that are sent `now`. `None` if that is of no use.
    pub(in crate::webrtc) fn numbers(&mut self, now: Instant) -> Option<&mut Numbers> {
        let time = self.time(now);
        let numbers = self.link.numbers.as_mut().filter(|_| self.is_numbered)?;
        numbers.now = time;
        Some(numbers)
    }

    /// Microseconds since it began.
    fn time(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// Takes feedback on packets that were numbered, in a compound RTCP packet. Returns whether there is any.
    pub(in crate::webrtc) fn take(&mut self, compound: &[u8]) -> bool {
        self.link.take(compound)
    }

    /// Takes a receiver report on the video. Returns whether the report is of use.
    ///
    /// `sent` bytes of the video were sent so far. Feedback on each packet tells more.
    pub(in crate::webrtc) fn report(
        &mut self,
        report: &ReceptionReport,
        sent: u32,
        (now, wall): (Instant, UnixMicros),
    ) -> bool {
        let (is_numbered, time) = (self.numbers(now).is_some(), self.time(now));
        self.link.report(report, sent, is_numbered, (time, wall));
        !is_numbered
    }

    /// Notes that packets take another path from here on.
    pub(super) fn moved(&mut self) {
        self.link.moved();
    }

    /// The track to go over to, for a viewer that gets `present`, and whether that is urgent. Otherwise
    /// its next keyframe is waited for.
    pub(in crate::webrtc) fn decide(
        &mut self,
        present: &Arc<Track>,
        now: Instant,
    ) -> Option<(Arc<Track>, bool)> {
        let time = self.time(now);
        let state = self.stream.state();
        if videos(&state) + usize::from(self.made.is_some()) < 2 {
            self.renditions.clear();
            self.stand(present);
            return None;
        }
        let is_old = self.renditions.is_empty()
            || time.saturating_sub(self.renewed) >= RENEWED
            || !present.is_present();
        if is_old {
            self.renew(&state, time);
        }
        if !self.stand(present) {
            // It has gone. The nearest takes its place.
            let to = self.at.min(self.renditions.len().checked_sub(1)?);
            return self.renditions.get(to).map(|it| (Arc::clone(&it.track), true));
        }
        if self.renditions.len() < 2 {
            return None;
        }
        let bits: Vec<_> = self.renditions.iter().map(|rendition| rendition.bits).collect();
        let decision = self.rule.decide(&self.link.seen, &bits, self.at);
        let (to, is_urgent) = match decision {
            Decision::Down { to, drop } => (to, drop),
            Decision::Up(to) => (to, false),
            // Nothing waits here that could be left out.
            Decision::Stay | Decision::SkipToLive => return None,
        };
        let (stream, at, seen) = (self.stream.name(), self.at, self.link.seen);
        tracing::debug!(stream, ?decision, at, ?seen, "whep rendition");
        self.renditions.get(to).map(|rendition| (Arc::clone(&rendition.track), is_urgent))
    }

    fn renew(&mut self, state: &State, time: u64) {
        self.renditions = renditions(state, self.codec, self.made.as_ref());
        // A track that ended may stay in the list for a while. Nothing else keeps one that has left it.
        let listed = || state.tracks.iter().chain(&self.made);
        self.over.retain(|over| listed().any(|track| Arc::ptr_eq(over, track)));
        let over = &self.over;
        self.renditions.retain(|it| !over.iter().any(|over| Arc::ptr_eq(over, &it.track)));
        self.renewed = time;
    }

    /// Notes where in the list the viewer's track is. Returns false if it is not there.
    fn stand(&mut self, present: &Arc<Track>) -> bool {
        let at = self.renditions.iter().position(|it| Arc::ptr_eq(&it.track, present));
        self.at = at.unwrap_or(self.at);
        let is_numbered = self.at + 1 < self.renditions.len();
        if is_numbered && !self.is_numbered {
            self.link.restart();
        }
        self.is_numbered = is_numbered;
        at.is_some()
    }

    /// Notes that the viewer gets `present` from here on.
    pub(in crate::webrtc) fn switched(&mut self, present: &Arc<Track>, now: Instant) {
        self.stand(present);
        let time = self.time(now);
        self.rule.switched(time.max(self.link.seen.now));
        self.link.forgive();
    }

    /// The track to go over to because `present` has ended. `None` if there is no other.
    pub(in crate::webrtc) fn leave(
        &mut self,
        present: &Arc<Track>,
        now: Instant,
    ) -> Option<Arc<Track>> {
        self.over.push(Arc::clone(present));
        let (state, time) = (self.stream.state(), self.time(now));
        self.renew(&state, time);
        let to = self.at.min(self.renditions.len().checked_sub(1)?);
        self.renditions.get(to).map(|it| Arc::clone(&it.track))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use live::{Publisher, PublisherInfo, Registry, Settings};
    use media::Sample;
    use media::codec::{av1, avc};

    use super::*;

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    /// Publishes six seconds of a rendition with frames of so many bytes, or with B-frames.
    fn publish(
        registry: &Registry,
        name: Option<&str>,
        bytes: u16,
        has_b_frames: bool,
    ) -> Publisher {
        let video = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publish_in(media::Codec::Avc(video), registry, name, bytes, has_b_frames)
    }

    fn publish_in(
        codec: media::Codec,
        registry: &Registry,
        name: Option<&str>,
        bytes: u16,
        has_b_frames: bool,
    ) -> Publisher {
        let rendition = name.map(str::to_owned);
        let info = PublisherInfo { peer: None, protocol: "test", rendition };
        let mut publisher = registry.publish("x", info, START).unwrap();
        publisher.track(0, codec, 1000, *b"und", START).unwrap();
        for frame in 0..150 {
            let sync = frame % 25 == 0;
            let [high, low] = bytes.to_be_bytes();
            let head = [0, 0, high, low, if sync { 0x65 } else { 0x41 }, 0x88];
            let data = Bytes::from([&head[..], &vec![1; usize::from(bytes) - 2]].concat());
            let cts = if has_b_frames && frame % 2 == 1 { 80 } else { 0 };
            let sample = Sample { dts: frame * 40, cts, duration: 0, sync, data };
            publisher.sample(0, sample, START).unwrap();
        }
        publisher
    }

    #[test]
    fn what_a_companion_makes_is_a_rendition() {
        let registry = Registry::new(Settings::default());
        let high = publish(&registry, None, 2_000, true);
        let low = publish(&registry, Some("low"), 500, false);
        let stream = Arc::clone(high.stream());
        let described = stream.state().tracks[0].header().track.clone();
        let made = live::Unlisted::new(described).unwrap();
        let all = renditions(&stream.state(), Codec::H264, Some(made.track()));
        assert_eq!(all.len(), 2);
        assert!(Arc::ptr_eq(&all[1].track, made.track()));
        let now = Instant::now();
        let made = Arc::clone(made.track());
        let mut choice =
            Choice::new(Arc::clone(&stream), Codec::H264, Some(Arc::clone(&made)), None, now);
        assert!(choice.decide(&made, now).is_none(), "it stays where it is");
        drop((high, low));
    }

    #[test]
    fn renditions_that_end_or_have_b_frames_are_not_chosen() {
        let registry = Registry::new(Settings::default());
        let high = publish(&registry, None, 2_000, false);
        let stream = Arc::clone(high.stream());
        let only = Arc::clone(&stream.state().tracks[0]);
        assert!(!has_several(&stream.state(), Codec::H264, false));
        let now = Instant::now();
        let mut choice = Choice::new(Arc::clone(&stream), Codec::H264, None, Numbers::new(3), now);
        assert!(choice.decide(&only, now).is_none() && choice.numbers(now).is_none());
        let _reordered = publish(&registry, Some("b"), 900, true);
        assert!(
            !has_several(&stream.state(), Codec::H264, false)
                && has_several(&stream.state(), Codec::H264, true)
        );

        // Each codec has its own renditions.
        let config = av1::Config::parse(Bytes::from_static(&[0x81, 0x04, 0x0c, 0])).unwrap();
        let _other = publish_in(media::Codec::Av1(config), &registry, Some("o"), 700, false);
        for codec in [Codec::H264, Codec::Av1] {
            assert_eq!(renditions(&stream.state(), codec, None).len(), 1, "{codec}");
            assert!(!has_several(&stream.state(), codec, false), "{codec}");
        }
        assert!(choice.decide(&only, now).is_none());

        // Another comes. Who has the lower one is told more of the link.
        let low = publish(&registry, Some("low"), 500, false);
        assert!(has_several(&stream.state(), Codec::H264, false));
        let track = |name: &str| {
            let state = stream.state();
            state.tracks.iter().find(|track| track.is_called(name)).cloned().unwrap()
        };
        let lower = track("low");
        let begun = begin(&stream.state(), None, Arc::clone(&lower));
        assert!(Arc::ptr_eq(&begun, &only), "the highest of at most 1.5 Mbit/s");
        let later = now + std::time::Duration::from_secs(6);
        assert!(choice.decide(&only, later).is_none() && choice.numbers(later).is_none());
        choice.switched(&lower, later);
        assert!(choice.numbers(later).is_some());

        // It ends, in either way.
        let (to, is_urgent) = {
            drop(low);
            registry.sweep(UnixMicros(START.0 + 1));
            let left = choice.leave(&lower, later).unwrap();
            assert!(Arc::ptr_eq(&left, &only));
            choice.decide(&lower, later).unwrap()
        };
        assert!(Arc::ptr_eq(&to, &only) && is_urgent);
        assert!(choice.leave(&only, later).is_none());
    }
}
