//! Silence that stands in for audio.

use super::*;

#[test]
fn silence_stands_in_as_soon_as_a_publishers_audio_is_later_than_it_was() {
    // How late the audio comes behind the video, and how far behind silence may be once the audio
    // stops.
    for (late, most) in [(0, 0.45), (200, 0.65), (450, 0.85)] {
        let registry = Registry::new(Settings::default());
        let mut publisher = publisher(&registry);
        let at = |millis: i64| UnixMicros(START + millis as u64 * 1000);
        publisher.track(0, video_codec(31), 1000, *b"und", at(0)).unwrap();
        publisher.track(1, audio_codec(48_000), 1000, *b"und", at(0)).unwrap();
        let stream = std::sync::Arc::clone(publisher.stream());
        let (video, audio) = (stream.track("v0").unwrap(), stream.track("a0").unwrap());
        let mut units = 0;
        for frame in 0..900 {
            let millis = frame * 100 / 3;
            publisher.sample(0, sample(millis, frame % 60 == 0, 100), at(millis)).unwrap();
            while frame < 600 && units * 1024 / 48 + late <= millis {
                publisher.sample(1, sample(units * 1024 / 48, true, 50), at(millis)).unwrap();
                units += 1;
            }
            let end = |track: &live::Track, timescale: f64| {
                track.window().newest().map(|newest| newest.presented_end() as f64 / timescale)
            };
            if frame > 620 {
                let behind = end(&video, 90_000.0).unwrap() - end(&audio, 48_000.0).unwrap();
                assert!(behind < most, "{late} ms late: {behind} s behind at frame {frame}");
            }
            if frame == 599 {
                let window = audio.window();
                let parts = window.all().flat_map(|segment| &segment.parts);
                let sizes: Vec<_> = parts.flat_map(|part| part.samples.iter()).collect();
                assert!(sizes.iter().all(|sample| sample.size == 50), "{late} ms late: silence");
            }
        }
    }
}

/// RFC 8216bis 4.4.4.9: a part that is not the last of its segment lasts at least 85 % of PART-TARGET.
#[test]
fn silence_for_audio_that_is_long_in_coming_has_parts_of_full_length() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    for frame in 0..300 {
        let millis = frame * 100 / 3;
        let now = UnixMicros(START + millis as u64 * 1000);
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
        registry.sweep(now);
    }
    let track = publisher.stream().track("a0").unwrap();
    let least = track.part_limit().unwrap() * 85 / 100;
    for segment in track.window().all() {
        let (_, others) = segment.parts.split_last().unwrap();
        let short: Vec<_> =
            others.iter().map(|part| part.duration).filter(|&d| d < least).collect();
        assert!(short.is_empty(), "{short:?} of {least} in segment {}", segment.msn);
    }
}

/// Counts what a track publishes.
#[derive(Default)]
struct Made {
    /// Number of the newest segment, and of its parts so far.
    last: (u64, usize),
    parts: usize,
    samples: usize,
    end: i64,
}

impl Made {
    /// Counts what is new since it last looked. Parts come one after the other, and no longer than
    /// they may be.
    fn look(&mut self, track: &live::Track) {
        let (newest, parts) = self.last;
        for segment in track.window().all().filter(|segment| segment.msn >= newest) {
            let known = if segment.msn == newest { parts } else { 0 };
            for part in &segment.parts[known..] {
                assert!(part.start >= self.end, "{} after {}", part.start, self.end);
                self.end = part.start + i64::from(part.duration);
                assert!(track.part_limit().is_none_or(|limit| part.duration <= limit));
                self.samples += part.samples.len();
            }
            self.parts += segment.parts.len() - known;
            self.last = (segment.msn, segment.parts.len());
        }
    }
}

/// One read from a socket may bring 16,000 access units of 4 bytes, each of which claims that 3.9 s
/// of audio are missing before it.
#[test]
fn silence_is_bounded_by_the_time_that_passes() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    let track = publisher.stream().track("a0").unwrap();
    let mut made = Made::default();
    for i in 0..16_000 {
        publisher.sample(1, sample(i * 3_900, true, 1), UnixMicros(START)).unwrap();
        made.look(&track);
    }
    // Silence of 20 s is 938 access units of 21 ms, in parts of 0.2 s and of what is left of them.
    assert!(made.samples <= 16_000 + 938, "{} samples", made.samples);
    assert!(made.parts <= 16_000 + 2 * 100, "{} parts", made.parts);
    assert!(track.window().all().all(|segment| segment.duration <= 48_000 * 9 / 2));

    // Gaps of a publisher in real time are filled as before.
    let (before, mut clock) = (made.samples, 15_999 * 3_900);
    for i in 1..=100u64 {
        clock += 3_900;
        let now = UnixMicros(START + i * 3_900_000);
        publisher.sample(1, sample(clock, true, 1), now).unwrap();
        made.look(&track);
    }
    let expected = 100 * 3_900 * 48 / 1024;
    assert!((made.samples - before).abs_diff(expected) <= 10, "{} samples", made.samples - before);
}

/// The same with frames of video that lie up to ten seconds apart, beside audio that does not come.
#[test]
fn silence_beside_video_is_bounded_by_the_time_that_passes() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(0, video_codec(31), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    publisher.sample(1, sample(0, true, 1), UnixMicros(START)).unwrap();
    let track = publisher.stream().track("a0").unwrap();
    let mut made = Made::default();
    for i in 0..16_000 {
        publisher.sample(0, sample(i * 9_900, true, 1), UnixMicros(START)).unwrap();
        made.look(&track);
    }
    assert!((900..=940).contains(&made.samples), "{} samples", made.samples);
    assert!(made.parts <= 2 * 100, "{} parts", made.parts);

    // Time that passes allows more, but not more than 20 s at once.
    let mut clock = 15_999 * 9_900;
    for seconds in [5, 65] {
        let now = UnixMicros(START + seconds * 1_000_000);
        let before = made.samples;
        for _ in 0..8 {
            clock += 9_900;
            publisher.sample(0, sample(clock, true, 1), now).unwrap();
            made.look(&track);
        }
        let expected = if seconds == 5 { 10 } else { 20 } * 48_000 / 1024;
        // Up to a part is not complete.
        let more = made.samples - before;
        assert!(more.abs_diff(expected) <= 10, "{more} samples after {seconds} s");
    }
}

/// A file that is published as fast as possible has silence where its audio has a gap.
#[test]
fn a_gap_is_filled_although_no_time_passes() {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    let now = UnixMicros(START);
    publisher.track(0, video_codec(31), 1000, *b"und", now).unwrap();
    publisher.track(1, audio_codec(48_000), 1000, *b"und", now).unwrap();
    let track = publisher.stream().track("a0").unwrap();
    let mut made = Made::default();
    let mut units = 0;
    for frame in 0..1200 {
        let millis = frame * 100 / 3;
        publisher.sample(0, sample(millis, frame % 60 == 0, 100), now).unwrap();
        while units * 64 / 3 <= millis {
            if !(10_000..16_000).contains(&millis) {
                publisher.sample(1, sample(units * 64 / 3, true, 50), now).unwrap();
            }
            units += 1;
        }
        made.look(&track);
    }
    let lasted = (made.end - 48_000) / 1024;
    assert_eq!(made.samples as i64, lasted, "there is a hole");
    assert!((units - lasted).abs() < 20, "{lasted} of {units} units");
}

/// The sizes of the access units of an audio track, and where it ends, in milliseconds of the publisher's time.
/// `times` are those of its units.
fn publish_audio(times: impl Iterator<Item = i64>) -> (Vec<u32>, i64) {
    let registry = Registry::new(Settings::default());
    let mut publisher = publisher(&registry);
    publisher.track(1, audio_codec(48_000), 1000, *b"und", UnixMicros(START)).unwrap();
    for time in times {
        publisher
            .sample(1, sample(time, true, 50), UnixMicros(START + time as u64 * 1000))
            .unwrap();
    }
    let track = publisher.stream().track("a0").unwrap();
    let window = track.window();
    let parts = window.all().flat_map(|segment| &segment.parts);
    let sizes = parts.flat_map(|part| part.samples.iter().map(|sample| sample.size)).collect();
    (sizes, (window.newest().unwrap().end() - 48_000) / 48)
}

#[test]
fn audio_with_one_time_for_several_units_keeps_them_all() {
    for batch in [1, 2, 3, 4, 6] {
        let (sizes, end) = publish_audio((0..600).map(|unit| unit / batch * batch * 64 / 3));
        let made = sizes.iter().filter(|size| **size != 50).count();
        assert_eq!(made, 0, "silence between batches of {batch}");
        // The newest part is not complete.
        assert!(sizes.len() > 575, "{} units of batches of {batch}", sizes.len());
        assert_eq!(end, sizes.len() as i64 * 64 / 3, "batches of {batch}");
    }
}

#[test]
fn audio_that_misses_a_few_units_is_back_in_time_soon() {
    let left_out = |unit: &i64| !(200..203).contains(unit);
    let (sizes, end) = publish_audio((0..600).filter(left_out).map(|unit| unit * 64 / 3));
    let first = sizes.iter().position(|size| *size != 50);
    assert!(first.is_some_and(|first| (200..215).contains(&first)), "{first:?}");
    // Within one unit of its time.
    let made = sizes.iter().filter(|size| **size != 50).count();
    assert!((2..=3).contains(&made), "{made} units of silence");
    assert_eq!(end, sizes.len() as i64 * 64 / 3);
}
