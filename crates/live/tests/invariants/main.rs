//! Random publishers: whatever their frame rates, keyframe distances, clock origins, gaps and
//! reconnects, the promises to viewers hold.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod refused;
mod witness;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::{PublisherInfo, Registry, Settings, Stream, UnixMicros, Window};
use media::codec::{aac, avc};
use media::{Codec, Sample};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use witness::{Witness, payloads};

const START: u64 = 1_700_000_000_000_000;

fn video_codec(level: u8) -> Codec {
    Codec::Avc(avc::Config::parse(testkit::avc_record(level).into()).unwrap())
}

fn audio_codec() -> Codec {
    Codec::Aac(aac::Config::parse(Bytes::from_static(&[0x11, 0x90])).unwrap())
}

fn info() -> PublisherInfo {
    PublisherInfo { peer: None, protocol: "test", rendition: None }
}

#[derive(Debug, Clone)]
enum Event {
    /// Consecutive frames of video, with the audio beside them.
    Run { frames: u32, gop: u32 },
    /// The same with irregular frames.
    Vary { frames: u32, gop: u32, how: Vary },
    /// Frames this many milliseconds apart, whatever the frame rate is.
    Burst { frames: u32, gop: u32, step: u32 },
    /// The publisher sends nothing while its clock goes on.
    Pause { millis: u32 },
    /// The connection is lost. After a while another publisher of the same name comes, whose clock
    /// starts anywhere.
    Reconnect { millis: u32, clock: i64 },
    /// The clock jumps.
    Jump { to: i64 },
    /// The picture size changes.
    Reconfigure { level: u8 },
    /// Only audio is absent for some frames.
    Mute { frames: u32 },
    /// Somebody sets the wall clock.
    SetClock { ahead: i64 },
}

/// How frames depart from a regular rate.
#[derive(Debug, Clone, Copy)]
enum Vary {
    /// Every n-th frame is missing.
    Dropped(u32),
    /// Each frame is late by up to this many milliseconds.
    Jitter(u32),
    /// Only every n-th frame comes.
    Rare(u32),
}

impl Vary {
    fn strategy() -> impl Strategy<Value = Self> {
        prop_oneof![
            (2u32..7).prop_map(Self::Dropped),
            (2u32..30).prop_map(Self::Jitter),
            (2u32..40).prop_map(Self::Rare),
        ]
    }

    /// How many milliseconds `frame` is late; `None` if it is missing.
    fn late(self, frame: u32) -> Option<i64> {
        match self {
            Self::Dropped(nth) if frame % nth == nth - 1 => None,
            Self::Rare(nth) if !frame.is_multiple_of(nth) => None,
            // Any irregular sequence will do.
            Self::Jitter(most) => Some(i64::from(frame * frame * 7919 % 65_521 % most)),
            _ => Some(0),
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1u32..200, 1u32..300).prop_map(|(frames, gop)| Event::Run { frames, gop }),
        4 => (1u32..200, 1u32..300, Vary::strategy())
            .prop_map(|(frames, gop, how)| Event::Vary { frames, gop, how }),
        2 => (1u32..200, 1u32..300, 5u32..50)
            .prop_map(|(frames, gop, step)| Event::Burst { frames, gop, step }),
        1 => (1u32..12_000).prop_map(|millis| Event::Pause { millis }),
        1 => (1u32..25_000, clocks()).prop_map(|(millis, clock)| Event::Reconnect { millis, clock }),
        1 => clocks().prop_map(|to| Event::Jump { to }),
        1 => prop_oneof![Just(30u8), Just(31), Just(40)].prop_map(|level| Event::Reconfigure { level }),
        1 => (1u32..400).prop_map(|frames| Event::Mute { frames }),
        1 => prop_oneof![-400_000i64..400_000, -1i64 << 40..1 << 40]
            .prop_map(|ahead| Event::SetClock { ahead }),
    ]
}

/// Clock origins in milliseconds: anywhere, and just below the wrap of 24, 31, 32 and 33 bits (of
/// 90 kHz). Clocks are unwrapped before they come here, so the crate only has to pass these values
/// unharmed.
fn clocks() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        Just((1 << 24) - 100),
        Just((1 << 31) - 100),
        Just((1 << 32) - 100),
        Just((1i64 << 33) / 90 - 100),
        0i64..1 << 40,
    ]
}

/// How samples come, whatever the events are.
#[derive(Debug, Clone, Copy, Default)]
struct Arrival {
    /// Each sample comes late by up to this many microseconds. None overtakes another.
    jitter: u64,
    /// The first video comes this many microseconds after the stream begins.
    video_from: u64,
    /// The same for the first audio.
    audio_from: u64,
    /// Whether every second frame is shown before the one that is decoded before it.
    reordered: bool,
}

impl Arrival {
    fn strategy() -> impl Strategy<Value = Self> {
        let from = || 1u64..3_000_000;
        let begins = prop_oneof![
            2 => Just((0, 0)),
            1 => from().prop_map(|video| (video, 0)),
            1 => from().prop_map(|audio| (0, audio)),
        ];
        (prop_oneof![Just(0), Just(30_000)], begins, any::<bool>()).prop_map(
            |(jitter, (video_from, audio_from), reordered)| Self {
                jitter,
                video_from,
                audio_from,
                reordered,
            },
        )
    }
}

/// The most seconds that parts can make up for after a pause.
const MADE_UP_FOR: f64 = 1.0;

/// How far decode times may be behind the publisher's. [`Witness::around_pauses`] has the frames
/// for which this becomes more than parts can make up for.
#[derive(Default)]
struct Lag {
    seconds: f64,
    /// The publisher's time of the newest frame.
    last: Option<f64>,
}

impl Lag {
    /// Takes a frame by its time in seconds. Returns by how much the part with the frame may be
    /// longer than `limit`, or `None` if it may not.
    fn take(&mut self, time: f64, limit: f64) -> Option<f64> {
        let step = (time - self.last.replace(time).unwrap_or(time)).max(0.0);
        let behind = self.seconds + step;
        self.seconds = (behind - limit).clamp(0.0, MADE_UP_FOR);
        (behind > MADE_UP_FOR).then_some(behind)
    }
}

struct Outcome {
    stream: Arc<Stream>,
    witnesses: HashMap<String, Witness>,
    /// Samples sent of each source: bytes, presentation time by the publisher's clock in
    /// milliseconds, and how many times that clock had begun anew.
    sent: HashMap<u32, Vec<(Bytes, i64, u64)>>,
    breaks: u64,
}

fn play(
    events: &[Event],
    frame_rate: (u32, u32),
    video: bool,
    audio: bool,
    settings: &Settings,
    arrival: Arrival,
) -> Outcome {
    let registry = Registry::new(settings.clone());
    let mut now = START;
    let mut publisher = registry.publish("x", info(), UnixMicros(now)).unwrap();
    let stream = Arc::clone(publisher.stream());
    let (mut level, mut clock_start, mut media_time) = (31u8, 0i64, 0f64);
    let mut witnesses: HashMap<String, Witness> = HashMap::new();
    let mut sent: HashMap<u32, Vec<(Bytes, i64, u64)>> = HashMap::new();
    let mut counter = 0u32;
    let (mut breaks, mut lag) = (0, Lag::default());
    let mut next_audio = 0f64;
    let mut waits_for_key;
    let mut video_begun = false;
    // The newest frame of video with its decode time in milliseconds, and whether the first frames of
    // this publication came less than ten times a second. Each of those waits for the next, and so
    // does the last of them before a pause.
    let mut newest: Option<(i64, Bytes)> = None;
    let mut begins_rare: Option<bool> = None;
    // When the newest sample came.
    let arrived = Cell::new(now);
    macro_rules! announce {
        () => {
            let now = UnixMicros(now.max(arrived.get()));
            if video {
                publisher.track(0, video_codec(level), 1000, *b"und", now).unwrap();
            }
            if audio {
                publisher.track(1000, audio_codec(), 1000, *b"und", now).unwrap();
            }
            waits_for_key = true;
        };
    }
    announce!();
    let mut push = |publisher: &mut live::Publisher,
                    source: u32,
                    (dts, cts): (i64, i32),
                    sync: bool,
                    now: u64,
                    run: u64| {
        counter += 1;
        let data = Bytes::from(counter.to_be_bytes().repeat(8));
        sent.entry(source).or_default().push((data.clone(), dts + i64::from(cts), run));
        // Any irregular sequence will do.
        let late = u64::from(counter).pow(2) * 7919 % 65_521 % (arrival.jitter + 1);
        arrived.set(arrived.get().max(now + late));
        let sample = Sample { dts, cts, duration: 0, sync, data: data.clone() };
        publisher.sample(source, sample, UnixMicros(arrived.get())).unwrap();
        data
    };
    let rate = f64::from(frame_rate.1) / f64::from(frame_rate.0);
    for event in events {
        let frame = match *event {
            Event::Burst { step, .. } => f64::from(step) / 1000.0,
            _ => rate,
        };
        // The distance of two frames may be longer than a part may last.
        let longest = match *event {
            Event::Vary { how: Vary::Dropped(_), .. } => 2.0 * frame,
            Event::Vary { how: Vary::Rare(nth), .. } => f64::from(nth) * frame,
            Event::Vary { how: Vary::Jitter(most), .. } => frame + f64::from(most) / 1000.0,
            _ => 0.0,
        };
        breaks += if longest > 2.0 || matches!(event, Event::Mute { .. }) { 200 } else { 0 };
        let vary = if let Event::Vary { how, .. } = *event { how } else { Vary::Rare(1) };
        let (frames, gop, mute) = match *event {
            Event::Run { frames, gop }
            | Event::Vary { frames, gop, .. }
            | Event::Burst { frames, gop, .. } => (frames, gop, false),
            Event::Mute { frames } => (frames, 30, true),
            // Video that is still to come leads. Until then no pause begins a period, so audio has a
            // hole where the publisher paused for longer than silence fills. If the clock jumps,
            // the first video may belong to the period before.
            Event::Pause { .. } | Event::Jump { .. } if video && audio && !video_begun => {
                (0, 1, false)
            }
            Event::Pause { millis } => {
                now += u64::from(millis) * 1000;
                media_time += f64::from(millis) / 1000.0;
                // Longer than a segment may last, or could last before that is known.
                breaks += u64::from(millis > 2000);
                next_audio = next_audio.max(media_time);
                (0, 1, false)
            }
            Event::Reconnect { millis, clock } => {
                drop(publisher);
                now = (now + u64::from(millis) * 1000).max(arrived.get());
                registry.sweep(UnixMicros(now));
                publisher = registry.publish("x", info(), UnixMicros(now)).unwrap();
                lag = Lag::default();
                (newest, begins_rare) = (None, None);
                (clock_start, media_time, next_audio) = (clock, 0.0, 0.0);
                announce!();
                breaks += 1;
                (0, 1, false)
            }
            // If a clock runs back a little, its times are held. Audio that overlaps is left out.
            Event::Jump { to }
                if (-300..=0).contains(&(to - clock_start - (media_time * 1000.0) as i64)) =>
            {
                (0, 1, false)
            }
            Event::Jump { to } => {
                (clock_start, media_time, next_audio) = (to, 0.0, 0.0);
                breaks += 1;
                (0, 1, false)
            }
            Event::SetClock { ahead } => {
                registry.follow_wall_clock(ahead);
                breaks += 1;
                (0, 1, false)
            }
            Event::Reconfigure { level: new } => {
                breaks += u64::from(new != level && video);
                level = new;
                announce!();
                (0, 1, false)
            }
        };
        for i in 0..frames {
            let millis = clock_start + (media_time * 1000.0).round() as i64;
            let comes = |from: u64| now >= START + from;
            let sync = i % gop == 0 || !video_begun;
            waits_for_key &= !(sync && i == 0);
            assert!(!waits_for_key, "every run starts with a keyframe");
            // The next frame's time must not be earlier.
            let latest = (frame * 1000.0) as i64 - 1;
            let late = vary.late(i).filter(|_| video && (video_begun || comes(arrival.video_from)));
            if let Some(late) = late.map(|late| late.min(latest)) {
                video_begun = true;
                let dts = millis + late;
                let shown = if arrival.reordered { [1.0, 2.0, 0.0][order(i, gop)] } else { 0.0 };
                let cts = (shown * frame * 1000.0).round() as i32;
                let data = push(&mut publisher, 0, (dts, cts), sync, now, breaks);
                let before = newest.replace((dts, data.clone()));
                let step = before.as_ref().map(|&(before, _)| dts - before);
                begins_rare = begins_rare.or(step.map(|step| step > 100));
                let is_rare = begins_rare.unwrap_or(false);
                let witness = witnesses.entry("v0".into()).or_default();
                let limit = witness.part_limit.map_or(0.0, |limit| f64::from(limit) / 90_000.0);
                if let Some(most) = lag.take(dts as f64 / 1000.0, limit) {
                    let before = before.filter(|_| is_rare).map(|(_, data)| data);
                    for data in before.into_iter().chain([data]) {
                        let known = witness.around_pauses.entry(data).or_default();
                        *known = known.max(most);
                    }
                }
            }
            while audio && next_audio < media_time + frame {
                if !mute && comes(arrival.audio_from) {
                    let millis = clock_start + (next_audio * 1000.0).round() as i64;
                    push(&mut publisher, 1000, (millis, 0), true, now, breaks);
                }
                next_audio += 1024.0 / 48_000.0;
            }
            media_time += frame;
            now += (frame * 1e6) as u64;
            for track in &stream.state().tracks {
                witnesses.entry(track.name.clone()).or_default().look(track, &stream);
            }
        }
    }
    drop(publisher);
    let now = now.max(arrived.get());
    registry.sweep(UnixMicros(now));
    for track in &stream.state().tracks {
        witnesses.entry(track.name.clone()).or_default().look(track, &stream);
    }
    registry.sweep(UnixMicros(now).after(Duration::from_secs(60)));
    for track in &stream.state().tracks {
        assert!(track.window().ended);
        witnesses.entry(track.name.clone()).or_default().look(track, &stream);
    }
    Outcome { stream, witnesses, sent, breaks }
}

/// Place of a frame among frames of which every second is shown before the one decoded before it: 0
/// for a keyframe, 1 for a frame that is shown after the next, 2 for the next.
fn order(frame: u32, gop: u32) -> usize {
    match frame % gop {
        0 => 0,
        odd if odd % 2 == 1 => 1,
        _ => 2,
    }
}

fn newest_period(window: &Window) -> u64 {
    window.newest().map_or(0, |segment| segment.period)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn promises_hold(
        mut events in prop::collection::vec(event(), 1..12),
        frame_rate in prop_oneof![
            Just((30, 1)), Just((24, 1)), Just((25, 1)), Just((30_000, 1001)), Just((60, 1)),
            Just((50, 1)), Just((24_000, 1001)), Just((10, 1)), Just((5, 1)), Just((1, 1)),
        ],
        tracks in prop_oneof![4 => Just((true, true)), 1 => Just((true, false)), 1 => Just((false, true))],
        part_target in prop_oneof![Just(200u64), Just(33), Just(500), Just(1000)],
        arrival in Arrival::strategy(),
    ) {
        events.insert(0, Event::Run { frames: 61, gop: 30 });
        let settings = Settings { part_target: Duration::from_millis(part_target), ..Settings::default() };
        let outcome = play(&events, frame_rate, tracks.0, tracks.1, &settings, arrival);
        for track in &outcome.stream.state().tracks {
            let source = if track.name.starts_with('v') { 0 } else { 1000 };
            let got = payloads(&outcome.witnesses[&track.name], &track.header().bytes);
            // Each access unit comes once, in order. Between them is silence where audio did not
            // come.
            let silence: &[u8] = &[0x21, 0x00, 0x49, 0x90, 0x02, 0x19, 0x00, 0x23, 0x80];
            let got: Vec<_> = got.into_iter().filter(|unit| unit != silence).collect();
            // A track that begins late may not have begun.
            let sent = outcome.sent.get(&source).map_or(&[][..], |sent| &sent[..]);
            prop_assert_eq!(&got, &sent.iter().map(|sent| sent.0.clone()).collect::<Vec<_>>());
            prop_assert!(newest_period(&track.window()) <= outcome.breaks);
            // Video is shown at the publisher's time, to the millisecond. Audio counts its access
            // units.
            let timescale = f64::from(track.header().track.timescale);
            let most = if source == 0 { 0.002 } else { 0.045 };
            let mut runs: HashMap<(u64, u64), (f64, f64)> = HashMap::new();
            for (data, millis, run) in sent {
                let (pts, period) = outcome.witnesses[&track.name].pts[data];
                let offset = pts as f64 / timescale - *millis as f64 / 1000.0;
                let (least, greatest) = runs.entry((*run, period)).or_insert((offset, offset));
                (*least, *greatest) = (least.min(offset), greatest.max(offset));
                prop_assert!(*greatest - *least <= most + 1e-6, "{} {least} {greatest}", track.name);
            }
        }
        // All tracks of a period have the same epoch.
        let mut epochs: BTreeMap<u64, i128> = BTreeMap::new();
        for witness in outcome.witnesses.values() {
            for (&period, &epoch) in &witness.epochs {
                prop_assert_eq!(*epochs.entry(period).or_insert(epoch), epoch, "{}", period);
            }
        }
    }
}

/// Each walk once broke a promise: a part longer than PART-TARGET where a period began after rare
/// frames, a hole in a period where the frame after a pause told what segments may last, a segment
/// longer than EXT-X-TARGETDURATION where rare frames paused, a segment that was complete before
/// EXT-X-TARGETDURATION was known because audio began before video, a hole where frames that came
/// after audio were rare, a hole where silence also filled the pause before a period, and a segment
/// that was complete before EXT-X-TARGETDURATION was known because the codec changed.
#[test]
fn promises_once_broken_by_a_pause_or_a_period_hold() {
    let run = |frames, gop| Event::Run { frames, gop };
    let rare = |frames, nth| Event::Vary { frames, gop: 1, how: Vary::Rare(nth) };
    for (events, rate, video_from) in [
        (
            vec![
                run(61, 30),
                Event::Vary { frames: 33, gop: 5, how: Vary::Rare(7) },
                Event::Reconfigure { level: 40 },
                run(1, 1),
            ],
            (25, 1),
            2_440_001,
        ),
        (
            vec![run(40, 30), rare(39, 7), Event::Reconnect { millis: 600, clock: 0 }, run(1, 1)],
            (5, 1),
            0,
        ),
        (vec![run(3, 3), Event::Pause { millis: 3995 }, run(40, 30)], (60, 1), 0),
        (vec![run(40, 30), Event::Pause { millis: 9500 }, run(1, 1)], (1, 1), 0),
        (vec![run(61, 30), run(1, 1)], (30_000, 1001), 967_615),
        (vec![run(61, 30), rare(54, 32), run(2, 1)], (30, 1), 1_933_315),
        (
            vec![
                run(61, 30),
                Event::Mute { frames: 20 },
                Event::Reconnect { millis: 18_776, clock: 0 },
                run(1, 1),
            ],
            (1, 1),
            0,
        ),
    ] {
        let arrival = Arrival { video_from, ..Arrival::default() };
        play(&events, rate, true, true, &Settings::default(), arrival);
    }
}

#[test]
fn regular_streams_are_cut_at_every_keyframe_near_the_target_into_whole_parts() {
    for (rate, gop, segment, part) in [
        ((30, 1), 60, 180_000, 18_000),
        ((30, 1), 30, 180_000, 18_000),
        ((25, 1), 50, 180_000, 18_000),
        ((24, 1), 48, 180_000, 18_750),
        ((60, 1), 120, 180_000, 18_000),
    ] {
        let settings = Settings::default();
        let frames = rate.0 * 12;
        let outcome =
            play(&[Event::Run { frames, gop }], rate, true, true, &settings, Arrival::default());
        let window = outcome.stream.track("v0").unwrap().window();
        let segments: Vec<_> = window.segments.iter().collect();
        assert!(segments.len() >= 3, "{rate:?} {gop}");
        // The frame rate is unknown before the second frame, whose time is rounded to milliseconds.
        assert!(segments[0].duration.abs_diff(segment) <= 90, "{rate:?} {gop}");
        for cut in &segments[1..segments.len() - 1] {
            assert_eq!(cut.duration, segment, "{rate:?} {gop}");
            for whole in &cut.parts[..cut.parts.len() - 1] {
                assert_eq!(whole.duration, part, "{rate:?} {gop}");
            }
        }
        let audio = outcome.stream.track("a0").unwrap().window();
        for (ours, theirs) in audio.segments.iter().zip(&segments) {
            assert_eq!(ours.msn, theirs.msn);
            let apart = ours.start as f64 / 48_000.0 - theirs.start as f64 / 90_000.0;
            assert!(apart.abs() < 0.25, "audio segment starts {apart} s from the video's");
        }
    }
}

#[test]
fn audio_that_stalls_does_not_stop_video() {
    let events = [Event::Run { frames: 90, gop: 60 }, Event::Mute { frames: 600 }];
    let outcome = play(&events, (30, 1), true, true, &Settings::default(), Arrival::default());
    let video = outcome.stream.track("v0").unwrap().window();
    assert_eq!(video.newest().unwrap().presented_end() / 90_000, 24);
    // Nor may it stop a player that waits for both: silence replaces the audio.
    let audio = outcome.stream.track("a0").unwrap();
    let behind = 24.0 - audio.window().newest().unwrap().end() as f64 / 48_000.0;
    assert!((0.0..0.8).contains(&behind), "audio is {behind} s behind");
    assert!(audio.is_present());
}

#[test]
fn audio_that_comes_back_takes_its_place_again() {
    let events = [
        Event::Run { frames: 90, gop: 60 },
        Event::Mute { frames: 150 },
        Event::Run { frames: 90, gop: 60 },
    ];
    let outcome = play(&events, (30, 1), true, true, &Settings::default(), Arrival::default());
    let audio = outcome.stream.track("a0").unwrap();
    let units = payloads(&outcome.witnesses["a0"], &audio.header().bytes);
    let sent = &outcome.sent[&1000];
    let silent = units.iter().filter(|unit| sent.iter().all(|sent| sent.0 != unit)).count();
    // Five seconds of 48 kHz in access units of 1,024 samples, none of them in a wrong place.
    assert_eq!(silent, 234, "of {}", units.len());
    assert_eq!(units.len(), sent.len() + silent);
    assert_eq!(audio.window().newest().unwrap().end(), 48_000 + units.len() as i64 * 1024);
}

#[test]
fn a_publisher_that_returns_costs_one_discontinuity_and_the_timeline_follows_the_clock() {
    let events = [
        Event::Run { frames: 90, gop: 60 },
        Event::Reconnect { millis: 8000, clock: 1 << 33 },
        Event::Run { frames: 90, gop: 60 },
    ];
    let outcome = play(&events, (30, 1), true, true, &Settings::default(), Arrival::default());
    for track in &outcome.stream.state().tracks {
        let window = track.window();
        let breaks: Vec<_> = window.segments.iter().filter(|s| s.discontinuity).collect();
        assert_eq!(breaks.len(), 1, "{}", track.name);
        let start = breaks[0].start as f64 / f64::from(track.header().track.timescale);
        assert!((start - 12.0).abs() < 0.05, "{} returns at {start}", track.name);
    }
}

#[test]
fn renditions_that_begin_apart_are_cut_at_the_same_keyframes() {
    let registry = Registry::new(Settings::default());
    let join = |name: &str| {
        let info = PublisherInfo { peer: None, protocol: "test", rendition: Some(name.into()) };
        let mut publisher = registry.publish("x", info, UnixMicros(START)).unwrap();
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        publisher
    };
    let (mut high, mut low) = (join("high"), join("low"));
    for frame in 0..600u32 {
        let now = UnixMicros(START + u64::from(frame) * 33_333);
        let sample = Sample {
            dts: i64::from(frame) * 100 / 3,
            cts: 0,
            duration: 0,
            sync: frame % 30 == 0,
            data: Bytes::from_static(&[0; 16]),
        };
        high.sample(0, sample.clone(), now).unwrap();
        if frame >= 25 {
            low.sample(0, sample, now).unwrap();
        }
    }
    let stream = registry.stream("x").unwrap();
    let starts = |name: &str| -> Vec<(u64, i64)> {
        let window = stream.track(name).unwrap().window();
        window.all().map(|segment| (segment.msn, segment.start)).skip(2).collect()
    };
    let (high, low) = (starts("v0"), starts("v1"));
    assert!(high.len() > 5);
    let apart = |((_, a), (_, b)): (&(u64, i64), &(u64, i64))| a.abs_diff(*b);
    let times: Vec<u64> = high.iter().rev().zip(low.iter().rev()).map(apart).collect();
    assert!(times.iter().all(|&apart| apart <= 180), "{high:?} {low:?}");
}
