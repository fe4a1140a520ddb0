//! Publishers that are refused because the memory is used up, and return.

use super::*;

/// A stream that takes all memory, and holds it as slow viewers do.
struct Hog {
    publisher: live::Publisher,
    parts: Vec<Arc<live::Part>>,
    frames: i64,
}

impl Hog {
    fn new(registry: &Registry) -> Self {
        let mut publisher = registry.publish("hog", info(), UnixMicros(START)).unwrap();
        publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
        Self { publisher, parts: Vec::new(), frames: 0 }
    }

    fn fill(&mut self) {
        loop {
            let data = vec![7; 20_000].into();
            let sync = self.frames % 30 == 0;
            let sample = Sample { dts: self.frames * 40, cts: 0, duration: 0, sync, data };
            let now = UnixMicros(START + self.frames as u64 * 40_000);
            self.frames += 1;
            if self.publisher.sample(0, sample, now).is_err() {
                return;
            }
            let window = self.publisher.stream().track("v0").unwrap().window();
            let newest = window.newest().and_then(|newest| newest.parts.last()).cloned();
            let is_new = |part: &Arc<live::Part>| {
                self.parts.last().is_none_or(|last| !Arc::ptr_eq(last, part))
            };
            let newest = newest.filter(is_new);
            self.parts.extend(newest);
        }
    }
}

/// Sends frames of this many bytes, the first of them a keyframe, from `began` on, in milliseconds. Returns
/// how many were taken.
fn send(
    publisher: &mut live::Publisher,
    (began, level): (u64, u8),
    (frames, size): (u64, usize),
    witness: &mut Witness,
) -> u64 {
    let stream = Arc::clone(publisher.stream());
    let at = |frame: u64| UnixMicros(START + (began + frame * 100 / 3) * 1000);
    publisher.track(0, video_codec(level), 1000, *b"und", at(0)).unwrap();
    let refused = (0..frames).find(|&frame| {
        let dts = (frame * 100 / 3) as i64;
        let data = vec![level; size].into();
        let sample = Sample { dts, cts: 0, duration: 0, sync: frame % 60 == 0, data };
        let refused = publisher.sample(0, sample, at(frame)).is_err();
        witness.look(&stream.track("v0").unwrap(), &stream);
        refused
    });
    refused.unwrap_or(frames)
}

/// The publisher's first part finds no room, twice. Nothing of what was refused is left in the segment that
/// begins when there is room again: it is the first of its period, with the new codec and its own times.
#[test]
fn a_publisher_that_returns_after_its_first_parts_found_no_room_begins_a_segment() {
    for leaves in [true, false] {
        let registry = Registry::with_memory(Settings::default(), 16 << 20);
        let join =
            |millis: u64| registry.publish("x", info(), UnixMicros(START + millis * 1000)).unwrap();
        let mut witness = Witness::default();
        let mut publisher = join(0);
        let stream = Arc::clone(publisher.stream());
        assert_eq!(send(&mut publisher, (0, 31), (100, 100), &mut witness), 100);
        // A stream without a publisher would give way and end.
        let mut hog = Hog::new(&registry);
        hog.fill();
        drop(publisher);
        let track = stream.track("v0").unwrap();
        let before = track.window().newest().unwrap().msn;
        for began in [8_000, 12_000] {
            let mut publisher = join(began);
            // Frames that fill a part are refused, or the publisher leaves with fewer.
            let frames = if leaves { 3 } else { 30 };
            let taken = send(&mut publisher, (began, 31), (frames, 600_000), &mut witness);
            assert!(taken < 10, "{taken} frames found room");
        }
        drop(hog);

        let mut publisher = join(20_000);
        assert_eq!(send(&mut publisher, (20_000, 40), (150, 100), &mut witness), 150);
        let window = track.window();
        let first = window.segment(before + 1).unwrap();
        let period = first.period;
        assert!(first.discontinuity && period > 0, "{leaves}");
        assert_eq!(first.header.track.codec, video_codec(40), "{leaves}");
        assert_eq!(first.header.msn, first.msn, "{leaves}");
        // A frame is decoded one frame before it is due.
        let began = first.start as f64 / 90_000.0 - 1.0;
        assert!((19.9..20.1).contains(&began), "{leaves}: it begins at {began} s");
        assert_eq!(first.duration, 180_000, "{leaves}");
        let others = window.all().filter(|segment| segment.msn > first.msn);
        assert!(others.into_iter().all(|it| !it.discontinuity && it.period == period));
        for segment in window.all().filter(|segment| segment.msn > before) {
            let levels = segment
                .parts
                .iter()
                .flat_map(|part| part.samples.iter().map(|sample| part.sample(sample)[0]));
            assert!(levels.into_iter().all(|level| level == 40), "{leaves}");
        }
    }
}
