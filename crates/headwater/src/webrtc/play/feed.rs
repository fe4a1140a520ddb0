//! A track's access units as RTP payloads, made once for all viewers of a worker.
//!
//! A feed reads the track's tap while somebody watches. It keeps all frames since the newest keyframe,
//! so that a viewer that comes begins at once. It hands each frame to all viewers in one turn: to wake a task for
//! each of them took a fifth of a viewer's time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem::{Discriminant, discriminant};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use live::Track;
use live::tap::{FromKeyframe, Tapped, Unit};
use media::codec::{av1, nal};
use media::{Codec, Sample};
use rtp::{AUDIO_RATE, VIDEO_RATE};
use tokio::task::{spawn_local, yield_now};

/// Bytes of a packet's payload. With the headers of RTP, SRTP, UDP and IP and the extensions, a packet
/// passes wherever 1,200 bytes of UDP do.
const PAYLOAD: usize = 1_120;

/// Viewers that get a frame before the loop's other tasks run.
const AT_ONCE: usize = 128;

/// Bytes and frames since the newest keyframe that are kept for new viewers. With more, a viewer
/// waits for the next keyframe.
const RECENT: (usize, usize) = (4 << 20, 1_024);

/// For how many seconds frames are kept for viewers that ask for packets again.
pub(in crate::webrtc) const KEPT_FOR: i64 = 3;

/// Bytes, frames, and seconds before the newest frame, within which frames are kept for viewers that ask
/// for packets again, although new viewers need them no more.
const KEPT: (usize, usize, i64) = (4 << 20, 1_024, KEPT_FOR);

/// Parameter sets and delimiters, ISO/IEC 14496-10 table 7-1 and 23008-2 table 7-1: a keyframe gets those of its
/// header.
const AVC_SETS: std::ops::RangeInclusive<u8> = 7..=9;
const HEVC_SETS: std::ops::RangeInclusive<u8> = 32..=35;

/// How many segments tell whether a stream has B-frames.
const LOOKED_AT: usize = 8;

/// Why a track's feed ends whose codec is not the one that its viewers have agreed on.
const ANOTHER_CODEC: &str = "the stream goes on with another codec";
/// Why WebRTC cannot show a stream.
pub(in crate::webrtc) const B_FRAMES: &str = "the stream has B-frames, which WebRTC cannot show";

/// One access unit.
#[derive(Debug)]
pub(in crate::webrtc) struct Frame {
    /// Its place among the frames of its feed.
    pub(in crate::webrtc) number: u64,
    /// Whether decoding can start here.
    pub(in crate::webrtc) key: bool,
    /// Presentation time in the units of RTP.
    pub(in crate::webrtc) time: i64,
    pub(in crate::webrtc) payloads: Vec<Arc<[u8]>>,
}

/// What viewers get.
#[derive(Debug, Clone)]
pub(in crate::webrtc) enum Fed {
    Frame(Rc<Frame>),
    /// There will be no more frames, and why.
    Over(&'static str),
}

/// A viewer of feeds.
pub(in crate::webrtc) trait Watch {
    /// Takes what a feed has. The viewer may subscribe to feeds meanwhile, and leave them.
    fn take(&self, feed: &Rc<Feed>, fed: &Fed);

    /// Ends, because `take` has panicked.
    fn fail(&self);
}

/// A track, packetized.
pub(in crate::webrtc) struct Feed {
    /// The feed keeps its track, so that no other track gets its address meanwhile.
    track: Arc<Track>,
    /// The viewers, by the numbers of their subscriptions.
    viewers: RefCell<BTreeMap<u64, Weak<dyn Watch>>>,
    subscriptions: Cell<u64>,
    state: RefCell<State>,
}

/// While it lasts, a viewer gets what a feed has.
pub(in crate::webrtc) struct Subscription {
    feed: Rc<Feed>,
    number: u64,
}

impl Subscription {
    pub(in crate::webrtc) fn feed(&self) -> &Rc<Feed> {
        &self.feed
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.feed.viewers.borrow_mut().remove(&self.number);
    }
}

impl Frame {
    fn bytes(&self) -> usize {
        self.payloads.iter().map(|payload| payload.len()).sum()
    }
}

#[derive(Default)]
struct State {
    /// All frames since the newest keyframe, or none if they are too many.
    recent: Vec<Rc<Frame>>,
    bytes: usize,
    /// The newest frames, whose packets can be sent again: one cache for all viewers, who refer to its
    /// frames. Only video has it.
    kept: VecDeque<Rc<Frame>>,
    kept_bytes: usize,
    /// Whether the next frame can be decoded with those before it.
    whole: bool,
    /// The number of the next frame.
    next: u64,
    period: u64,
    last: Option<i64>,
    /// The codec of all frames, whatever its configuration.
    codec: Option<Discriminant<Codec>>,
    over: Option<&'static str>,
}

/// The feeds of a worker, by the addresses of their tracks.
#[derive(Default)]
pub(in crate::webrtc) struct Feeds(RefCell<HashMap<usize, Weak<Feed>>>);

impl Feeds {
    /// The feed of a track.
    pub(in crate::webrtc) fn of(&self, track: &Arc<Track>) -> Rc<Feed> {
        let mut feeds = self.0.borrow_mut();
        let key = Arc::as_ptr(track).addr();
        if let Some(feed) = feeds.get(&key).and_then(Weak::upgrade).filter(|it| it.over().is_none())
        {
            return feed;
        }
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = Rc::new(Feed {
            track: Arc::clone(track),
            viewers: RefCell::default(),
            subscriptions: Cell::default(),
            state: RefCell::default(),
        });
        feeds.insert(key, Rc::downgrade(&feed));
        spawn_local(read(Rc::downgrade(&feed), feed.track.tap_from_keyframe()));
        feed
    }
}

/// Reads a track until nobody watches.
async fn read(feed: Weak<Feed>, mut tap: FromKeyframe) {
    loop {
        let tapped = tap.next().await;
        let Some(feed) = feed.upgrade() else { return };
        let fed = match tapped {
            Tapped::Unit(unit) => feed.take(&unit),
            Tapped::Lost(_) => {
                feed.lose();
                None
            }
            Tapped::Over => Some(feed.end("the stream is over")),
        };
        if let Some(fed) = fed {
            hand_out(&feed, &fed).await;
            if matches!(fed, Fed::Over(_)) {
                return;
            }
        }
    }
}

/// Hands something to all who are subscribed now. Those who subscribe meanwhile begin with it.
async fn hand_out(feed: &Rc<Feed>, fed: &Fed) {
    let viewers: Vec<_> = feed.viewers.borrow().values().cloned().collect();
    for (index, viewers) in viewers.chunks(AT_ONCE).enumerate() {
        if index > 0 {
            yield_now().await;
        }
        for viewer in viewers.iter().filter_map(Weak::upgrade) {
            // A panic ends that viewer alone, as it would in a task of its own.
            if catch_unwind(AssertUnwindSafe(|| viewer.take(feed, fed))).is_err() {
                viewer.fail();
            }
        }
    }
}

/// Whether the newest media of a track have B-frames: frames that are shown in another order than they
/// are decoded in. Encoders use them as they see fit, so one segment does not tell.
pub(in crate::webrtc) fn has_b_frames(track: &Track) -> bool {
    track.window().all().rev().take(LOOKED_AT).any(|segment| {
        let times = segment.parts.iter().flat_map(|part| &part.samples);
        let times = times.map(|layout| layout.dts + i64::from(layout.cts));
        !times.is_sorted()
    })
}

impl Feed {
    /// The track.
    pub(in crate::webrtc) fn track(&self) -> &Arc<Track> {
        &self.track
    }

    /// The frames that a new viewer begins with. It gets those that follow while the subscription lasts.
    pub(in crate::webrtc) fn subscribe(
        self: &Rc<Self>,
        viewer: Weak<dyn Watch>,
    ) -> (Vec<Rc<Frame>>, Subscription) {
        let number = self.subscriptions.get();
        self.subscriptions.set(number + 1);
        self.viewers.borrow_mut().insert(number, viewer);
        (self.recent(), Subscription { feed: Rc::clone(self), number })
    }

    /// All frames since the newest keyframe.
    pub(in crate::webrtc) fn recent(&self) -> Vec<Rc<Frame>> {
        self.state.borrow().recent.clone()
    }

    /// Why there are no more frames, if so.
    pub(in crate::webrtc) fn over(&self) -> Option<&'static str> {
        self.state.borrow().over
    }

    /// Takes a unit. Returns what viewers get.
    fn take(&self, Unit { sample, period, header, .. }: &Unit) -> Option<Fed> {
        let mut state = self.state.borrow_mut();
        let rate = if self.track.kind == media::Kind::Video { VIDEO_RATE } else { AUDIO_RATE };
        let time = live::rescale(sample.pts(), header.track.timescale, rate);
        if std::mem::replace(&mut state.period, *period) != *period {
            (state.whole, state.last) = (false, None);
        }
        state.whole |= sample.sync;
        let codec = &header.track.codec;
        let kind = discriminant(codec);
        if *state.codec.get_or_insert(kind) != kind {
            drop(state);
            return Some(self.end(ANOTHER_CODEC));
        }
        let payloads = if state.whole { payloads(sample, codec) } else { None };
        let Some(payloads) = payloads else {
            drop(state);
            self.lose();
            return None;
        };
        if state.last.is_some_and(|last| time < last) && self.track.kind == media::Kind::Video {
            drop(state);
            return Some(self.end(B_FRAMES));
        }
        state.last = Some(time);
        let frame = Rc::new(Frame { number: state.next, key: sample.sync, time, payloads });
        state.next += 1;
        let bytes = frame.bytes();
        if self.track.kind == media::Kind::Video {
            state.keep(&frame, bytes);
        }
        let begins = frame.key;
        if begins {
            state.recent.clear();
            state.bytes = 0;
        }
        if begins || !state.recent.is_empty() {
            state.bytes += bytes;
            state.recent.push(Rc::clone(&frame));
        }
        let (most_bytes, most_frames) = RECENT;
        if state.bytes > most_bytes || state.recent.len() > most_frames {
            state.recent.clear();
        }
        Some(Fed::Frame(frame))
    }

    /// Notes that a frame is missing: all until the next keyframe are left out.
    fn lose(&self) {
        let mut state = self.state.borrow_mut();
        state.whole = false;
        state.recent.clear();
    }

    fn end(&self, why: &'static str) -> Fed {
        self.state.borrow_mut().over = Some(why);
        Fed::Over(why)
    }
}

impl State {
    /// Keeps a frame, and gives up those that are too old or too many.
    fn keep(&mut self, frame: &Rc<Frame>, bytes: usize) {
        self.kept.push_back(Rc::clone(frame));
        self.kept_bytes += bytes;
        let (most_bytes, most_frames, seconds) = KEPT;
        let from = frame.time.saturating_sub(seconds * i64::from(VIDEO_RATE));
        while let Some(oldest) = self.kept.front()
            && (self.kept_bytes > most_bytes
                || self.kept.len() > most_frames
                || !(from..=frame.time).contains(&oldest.time))
        {
            self.kept_bytes -= oldest.bytes();
            self.kept.pop_front();
        }
    }
}

/// The payloads of a sample's packets. `None` if it is broken, or its codec is none of ours.
pub(crate) fn payloads(sample: &Sample, codec: &Codec) -> Option<Vec<Arc<[u8]>>> {
    match codec {
        Codec::Opus(_) => Some(vec![sample.data.as_ref().into()]),
        Codec::Avc(config) => {
            let is_set = |unit: &[u8]| AVC_SETS.contains(&(unit[0] & 0x1f));
            let sets = config.sps.iter().chain(&config.pps);
            let units = with_sets(sample, config.nal_length_size, sets, is_set)?;
            Some(rtp::h264::packetize(units, PAYLOAD))
        }
        Codec::Hevc(config) => {
            let is_set = |unit: &[u8]| HEVC_SETS.contains(&(unit[0] >> 1 & 0x3f));
            let sets = config.nal_units.iter();
            let units = with_sets(sample, config.nal_length_size, sets, is_set)?;
            Some(rtp::h265::packetize(units, PAYLOAD))
        }
        Codec::Av1(config) => {
            let is_header = |obu: Result<av1::Obu<'_>, _>| {
                obu.is_ok_and(|obu| obu.kind == av1::OBU_SEQUENCE_HEADER)
            };
            if !sample.sync || av1::obus(&sample.data).any(is_header) {
                return rtp::av1::packetize(&sample.data, sample.sync, PAYLOAD);
            }
            // A file may have the sequence header in its configuration alone.
            let whole = [config.obus(), &sample.data].concat();
            rtp::av1::packetize(&whole, true, PAYLOAD)
        }
        _ => None,
    }
}

/// The NAL units of a sample. A keyframe has these parameter sets before them, and those that it had before are
/// left out. `None` if it is broken.
fn with_sets<'a>(
    sample: &'a Sample,
    length_size: u8,
    sets: impl Iterator<Item = &'a Bytes>,
    is_set: impl Fn(&[u8]) -> bool,
) -> Option<Vec<&'a [u8]>> {
    let sets = sets.filter(|set| sample.sync && !set.is_empty()).map(AsRef::as_ref);
    let units: Result<Vec<_>, _> = nal::units(&sample.data, length_size).collect();
    let units = units.ok()?.into_iter().filter(|unit| !is_set(unit));
    Some(sets.chain(units).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use live::{Publisher, PublisherInfo, Registry, Settings, UnixMicros};
    use media::codec::{avc, hevc};
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    const START: UnixMicros = UnixMicros(1_700_000_000_000_000);

    pub(in crate::webrtc) fn publisher() -> (Registry, Publisher) {
        let registry = Registry::new(Settings::default());
        let info = PublisherInfo { peer: None, protocol: "test", rendition: None };
        let mut publisher = registry.publish("x", info, START).unwrap();
        let video = avc::Config::parse(testkit::avc_record(31).into()).unwrap();
        publisher.track(0, Codec::Avc(video), 1000, *b"und", START).unwrap();
        (registry, publisher)
    }

    /// Publishes frames of 40 ms, with a keyframe every 50.
    pub(in crate::webrtc) fn publish(
        publisher: &mut Publisher,
        frames: std::ops::Range<i64>,
        cts: i32,
    ) {
        for frame in frames {
            let sync = frame % 50 == 0;
            let data = Bytes::from(vec![0, 0, 0, 3, if sync { 0x65 } else { 0x41 }, 0x88, 1]);
            let sample = Sample { dts: frame * 40, cts, duration: 0, sync, data };
            publisher.sample(0, sample, START).unwrap();
        }
    }

    /// A viewer that keeps what it gets.
    #[derive(Default)]
    pub(in crate::webrtc) struct Viewer {
        pub(in crate::webrtc) frames: RefCell<Vec<Rc<Frame>>>,
        panics: Cell<bool>,
        failed: Cell<bool>,
    }

    impl Viewer {
        pub(in crate::webrtc) fn weak(self: &Rc<Self>) -> Weak<dyn Watch> {
            let weak: Weak<Self> = Rc::downgrade(self);
            weak
        }
    }

    impl Watch for Viewer {
        fn take(&self, _: &Rc<Feed>, fed: &Fed) {
            assert!(!self.panics.get());
            if let Fed::Frame(frame) = fed {
                self.frames.borrow_mut().push(Rc::clone(frame));
            }
        }

        fn fail(&self) {
            self.failed.set(true);
        }
    }

    /// Lets the feed's task run.
    pub(in crate::webrtc) async fn settle() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    /// The frames' numbers, and which are keyframes.
    pub(in crate::webrtc) fn numbers(frames: &[Rc<Frame>]) -> Vec<(i64, bool)> {
        frames.iter().map(|frame| ((frame.time - 90_000) / 3600, frame.key)).collect()
    }

    #[tokio::test]
    async fn a_viewer_gets_all_frames_since_the_newest_keyframe() {
        let test = async {
            let (_registry, mut publisher) = publisher();
            publish(&mut publisher, 0..63, 0);
            let feeds = Feeds::default();
            let feed = feeds.of(&publisher.stream().track("v0").unwrap());
            settle().await;
            assert_eq!(numbers(&feed.recent()), []);
            // The next frame is part of the window once its part is full.
            publish(&mut publisher, 63..75, 0);
            settle().await;
            let expected: Vec<_> = (50..75).map(|number| (number, number == 50)).collect();
            assert_eq!(numbers(&feed.recent()), expected);
            // The keyframe has the parameter sets.
            let viewer = Rc::new(Viewer::default());
            let (recent, subscription) = feed.subscribe(viewer.weak());
            assert_eq!(recent[0].payloads.len(), 1);
            assert_eq!(recent[0].payloads[0][0] & 0x1f, 24);
            assert_eq!(&*recent[1].payloads[0], [0x41, 0x88, 1]);
            // All viewers have the same feed.
            assert!(Rc::ptr_eq(&feed, &feeds.of(&feed.track)));
            publish(&mut publisher, 75..102, 0);
            settle().await;
            assert_eq!(numbers(&feed.recent()), [(100, true), (101, false)]);
            let expected: Vec<_> = (75..102).map(|number| (number, number == 100)).collect();
            assert_eq!(numbers(&viewer.frames.take()), expected);
            drop(subscription);
            publish(&mut publisher, 102..105, 0);
            settle().await;
            assert_eq!(numbers(&viewer.frames.take()), []);
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn a_viewer_that_panics_disturbs_no_other() {
        let test = async {
            let (_registry, mut publisher) = publisher();
            publish(&mut publisher, 0..30, 0);
            let feed = Feeds::default().of(&publisher.stream().track("v0").unwrap());
            let viewers: [_; 300] = std::array::from_fn(|_| Rc::new(Viewer::default()));
            let _kept = viewers.each_ref().map(|viewer| feed.subscribe(viewer.weak()));
            viewers[100].panics.set(true);
            settle().await;
            publish(&mut publisher, 50..60, 0);
            // Each frame takes several turns.
            for _ in 0..10 {
                settle().await;
            }
            let all = viewers[0].frames.borrow().len();
            assert!(all >= 10, "{all}");
            for (index, viewer) in viewers.iter().enumerate() {
                let got = if index == 100 { 0 } else { all };
                assert_eq!((viewer.frames.borrow().len(), viewer.failed.get()), (got, got == 0));
            }
        };
        LocalSet::new().run_until(test).await;
    }

    #[test]
    fn a_keyframe_of_av1_has_its_sequence_header() {
        let header = [0x0a, 11, 0, 0, 0, 4, 0x3c, 0xff, 0xbd, 0xff, 0xf9, 0x84, 0x40];
        let frame = [0x32, 3, 0x10, 1, 2];
        let whole = [&header[..], &frame].concat();
        let codec = Codec::Av1(av1::Config::from_temporal_unit(&whole).unwrap().unwrap());
        let of = |data: &[u8], sync| {
            let data = Bytes::copy_from_slice(data);
            let sample = Sample { dts: 0, cts: 0, duration: 0, sync, data };
            let payloads = payloads(&sample, &codec)?;
            Some(payloads.iter().map(|payload| payload.to_vec()).collect::<Vec<_>>())
        };
        // Two elements and the beginning of a sequence. The first has its length, neither has a size.
        let packet = [&[0x28, 12, 0x08][..], &header[2..], &[0x30, 0x10, 1, 2]].concat();
        assert_eq!(of(&whole, true), Some(vec![packet.clone()]));
        assert_eq!(of(&frame, true), Some(vec![packet]), "it was in the configuration alone");
        assert_eq!(of(&frame, false), Some(vec![vec![0x10, 0x30, 0x10, 1, 2]]));
        assert_eq!(of(&frame[..4], false), None, "cut off");
    }

    #[test]
    fn a_keyframe_of_hevc_has_its_parameter_sets() {
        let sets = testkit::hevc_sets();
        let [vps, sps, pps] = sets.clone().map(|set| [Bytes::from(set)]);
        let record = hevc::record(&vps, &sps, &pps).unwrap();
        let codec = Codec::Hevc(hevc::Config::parse(record).unwrap());
        let of = |data: &[&[u8]], sync| {
            let sample = Sample { dts: 0, cts: 0, duration: 0, sync, data: data.concat().into() };
            let payloads = payloads(&sample, &codec)?;
            Some(payloads.iter().map(|payload| payload.to_vec()).collect::<Vec<_>>())
        };
        let (slice, delimiter) = (&[0, 0, 0, 4, 0x28, 1, 0x88, 1][..], &[0, 0, 0, 3, 70, 1, 0x50]);
        let mut packet = vec![0x60, 1];
        for unit in sets.iter().map(Vec::as_slice).chain([&slice[4..]]) {
            packet.extend([&[0, unit.len() as u8], unit].concat());
        }
        assert_eq!(of(&[delimiter, slice], true), Some(vec![packet]));
        assert_eq!(of(&[delimiter, slice], false), Some(vec![slice[4..].to_vec()]));
        assert_eq!(of(&[&slice[..5]], true), None, "cut off");
    }

    #[test]
    fn the_newest_frames_are_kept_for_those_who_ask_again() {
        let mut state = State::default();
        // In milliseconds.
        let mut keep = |time: i64, bytes: usize| {
            let payloads = vec![vec![0; bytes].into()];
            let frame = Frame { number: 0, key: false, time: 90 * time, payloads };
            state.keep(&Rc::new(frame), bytes);
            let bytes: usize = state.kept.iter().map(|frame| frame.bytes()).sum();
            assert_eq!(state.kept_bytes, bytes);
            (state.kept.front().map(|frame| frame.time / 90), state.kept.len())
        };
        for time in (0..=3000).step_by(100) {
            assert_eq!(keep(time, 1000), (Some(0), time as usize / 100 + 1));
        }
        assert_eq!(keep(3100, 1000), (Some(100), 31));
        // Their bytes are bounded, and so is their number.
        assert_eq!(keep(3101, (4 << 20) - 2000), (Some(3000), 3));
        assert_eq!(keep(3102, 4 << 20), (Some(3102), 1));
        (0..1023).for_each(|_| _ = keep(3102, 0));
        assert_eq!(keep(3103, 0), (Some(3102), 1024));
        // After a jump of the clock, what was before is as good as gone.
        assert_eq!(keep(-5000, 10), (Some(-5000), 1));
    }

    #[tokio::test]
    async fn another_codec_ends_it() {
        let test = async {
            let (_registry, mut publisher) = publisher();
            publish(&mut publisher, 0..30, 0);
            let track = publisher.stream().track("v0").unwrap();
            let feeds = Feeds::default();
            let feed = feeds.of(&track);
            publish(&mut publisher, 50..60, 0);
            settle().await;
            assert_eq!(feed.over(), None);
            let [vps, sps, pps] = testkit::hevc_sets().map(|set| [Bytes::from(set)]);
            let record = hevc::record(&vps, &sps, &pps).unwrap();
            let video = Codec::Hevc(hevc::Config::parse(record).unwrap());
            publisher.track(0, video, 1000, *b"und", START).unwrap();
            publish(&mut publisher, 100..102, 0);
            settle().await;
            assert_eq!(feed.over(), Some(ANOTHER_CODEC));
            // Those who come now agree on the codec that there is now.
            assert_eq!(feeds.of(&track).over(), None);
        };
        LocalSet::new().run_until(test).await;
    }

    #[tokio::test]
    async fn frames_out_of_order_end_it() {
        let test = async {
            let (_registry, mut publisher) = publisher();
            publish(&mut publisher, 0..30, 0);
            let track = publisher.stream().track("v0").unwrap();
            assert!(!has_b_frames(&track));
            let feed = Feeds::default().of(&track);
            publish(&mut publisher, 50..52, 80);
            publish(&mut publisher, 52..53, 0);
            settle().await;
            assert_eq!(feed.over(), Some(B_FRAMES));
            publish(&mut publisher, 53..70, 0);
            assert!(has_b_frames(&track));
        };
        LocalSet::new().run_until(test).await;
    }
}
