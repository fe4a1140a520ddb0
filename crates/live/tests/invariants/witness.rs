//! A viewer who reads the window after every sample, and compares it with what it has seen before.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use live::{Stream, Track};
use media::Kind;

/// A segment as the witness last saw it.
#[derive(Default)]
struct Seen {
    start: i64,
    /// Set once the segment is complete.
    duration: Option<u64>,
    /// Start, duration and bytes of each part.
    parts: Vec<(i64, u32, Bytes)>,
}

/// What a viewer who reads the window after every sample has seen, to compare later snapshots with.
#[derive(Default)]
pub(crate) struct Witness {
    segments: HashMap<u64, Seen>,
    last_listed: u64,
    pub(crate) part_limit: Option<u32>,
    /// Presentation time and period of each sample, by its bytes.
    pub(crate) pts: HashMap<Bytes, (i64, u64)>,
    /// Frames before and after more than parts can make up for, by their bytes, and how many seconds
    /// a part with such a frame may last longer than `PART-TARGET`.
    pub(crate) around_pauses: HashMap<Bytes, f64>,
    /// Date minus presentation time of all segments of a period, in milliseconds.
    pub(crate) epochs: BTreeMap<u64, i128>,
}

impl Witness {
    pub(crate) fn look(&mut self, track: &Track, stream: &Stream) {
        let window = track.window();
        let timescale = u64::from(track.header().track.timescale);
        if let Some(limit) = self.part_limit {
            assert_eq!(track.part_limit(), Some(limit), "PART-TARGET changed");
        }
        self.part_limit = track.part_limit();
        let (mut expected, mut end): (Option<u64>, Option<(i64, u64)>) = (None, None);
        for segment in window.all() {
            if let Some(msn) = expected {
                assert_eq!(segment.msn, msn, "segment numbers are consecutive");
            }
            assert!(segment.msn > 0);
            expected = Some(segment.msn + 1);
            let complete = window.is_complete(segment.msn);
            let sum: u64 = segment.parts.iter().map(|part| u64::from(part.duration)).sum();
            assert_eq!(sum, segment.duration, "parts add up to their segment");
            let video = track.kind == Kind::Video;
            assert!(
                stream.is_settled() || !complete || window.ended || !video,
                "playlists can be told"
            );
            let longest = stream.target_duration().as_secs() * timescale + timescale / 2;
            assert!(segment.duration < longest, "segment of {} ticks", segment.duration);
            let micros = i128::from(segment.presents) * 1_000_000 / i128::from(timescale);
            let epoch = i128::from(segment.captured.0) - micros;
            // Presentation times are rounded to microseconds.
            let millis = (epoch + 500) / 1000;
            assert!((epoch - millis * 1000).abs() <= 1, "{epoch} is no whole millisecond");
            let known = *self.epochs.entry(segment.period).or_insert(millis);
            assert_eq!(known, millis, "a period has two epochs");
            if let Some(part) = segment.parts.first() {
                let told = prft(part.region.as_ref());
                let wanted = (segment.captured.0, u64::try_from(segment.presents).unwrap());
                assert!(
                    told.0.abs_diff(wanted.0) <= 1 && told.1 == wanted.1,
                    "{told:?}, {wanted:?}"
                );
            }
            if let Some((at, before)) = end {
                assert!(
                    before != segment.period || at == segment.start,
                    "{}: {} begins at {}, the one before ends at {at}",
                    track.name,
                    segment.msn,
                    segment.start
                );
            }
            end = Some((segment.end(), segment.period));
            let (mut end, limit) = (segment.start, self.part_limit.unwrap());
            let last = segment.parts.len() - 1;
            for (index, part) in segment.parts.iter().enumerate() {
                assert!(part.start == end, "parts abut");
                end = part.start + i64::from(part.duration);
                if part.duration > limit {
                    let pauses = part.samples.iter().filter_map(|sample| {
                        let data = Bytes::copy_from_slice(part.sample(sample));
                        self.around_pauses.get(&data)
                    });
                    let beyond = f64::from(part.duration - limit) / timescale as f64;
                    let most = pauses.copied().reduce(f64::max);
                    assert!(
                        most.is_some_and(|most| beyond <= most),
                        "{}: part longer than PART-TARGET by {beyond} s, excused are {most:?}",
                        track.name
                    );
                }
                let least = f64::from(limit) * 0.85;
                assert!(
                    f64::from(part.duration) >= least || index == last || track.kind == Kind::Audio,
                    "part {index} of {} ticks, PART-TARGET is {limit}",
                    part.duration
                );
                assert_eq!(part.independent, part.samples[0].sync);
            }
            let seen = self
                .segments
                .entry(segment.msn)
                .or_insert_with(|| Seen { start: segment.start, ..Seen::default() });
            assert_eq!(seen.start, segment.start);
            if let Some(duration) = seen.duration {
                assert_eq!(segment.duration, duration, "a complete segment changed");
            }
            assert!(seen.parts.len() <= segment.parts.len(), "a part was taken back");
            for (known, part) in seen.parts.iter().zip(&segment.parts) {
                assert_eq!((known.0, known.1), (part.start, part.duration));
                assert_eq!(known.2, part.region.as_ref(), "published bytes changed");
            }
            for part in &segment.parts[seen.parts.len()..] {
                seen.parts.push((part.start, part.duration, part.region.to_bytes()));
                for sample in &part.samples {
                    let pts = sample.dts + i64::from(sample.cts);
                    let data = Bytes::copy_from_slice(part.sample(sample));
                    self.pts.insert(data, (pts, segment.period));
                }
            }
            seen.duration = complete.then_some(segment.duration);
        }
        let first = window.listed().next().map(|segment| segment.msn).or(window.next_msn());
        let first = first.unwrap_or(0);
        assert!(
            first >= self.last_listed,
            "the playlist grew backwards: {first} {} {} of {}",
            self.last_listed,
            window.unlisted,
            window.segments.len()
        );
        self.last_listed = first;
        let listed: u64 = window.listed().map(|segment| segment.duration).sum();
        let most = stream.window() + stream.target_duration() + Duration::from_millis(500);
        assert!(listed * 1000 <= most.as_millis() as u64 * timescale, "the window does not shrink");
    }
}

/// Reads the Producer Reference Time box of a segment (ISO/IEC 14496-12 8.16.5): microseconds since
/// 1970, and the media time at that moment.
fn prft(segment: &[u8]) -> (u64, u64) {
    let styp = u32::from_be_bytes(segment[..4].try_into().unwrap()) as usize;
    let body = &segment[styp + 8..];
    assert_eq!((&segment[styp + 4..styp + 8], body[0]), (&b"prft"[..], 1));
    // Flags and track_ID come before the number.
    let number = |at: usize| u64::from_be_bytes(body[at..at + 8].try_into().unwrap());
    let (seconds, fraction) = (number(8) >> 32, number(8) & 0xffff_ffff);
    ((seconds - 2_208_988_800) * 1_000_000 + ((fraction * 1_000_000) >> 32), number(16))
}

/// Samples of everything that one track published. Each chunk must parse, and its times must agree.
pub(crate) fn payloads(witness: &Witness, header: &[u8]) -> Vec<Bytes> {
    let header = media::cmaf::read_header(header).unwrap();
    let mut segments: Vec<_> = witness.segments.iter().collect();
    segments.sort_by_key(|(msn, _)| **msn);
    let mut payloads = vec![];
    let mut sequence = 0;
    for (_, seen) in segments {
        for (start, duration, bytes) in &seen.parts {
            let chunks: Vec<_> =
                media::cmaf::chunks(bytes, Some(&header)).collect::<Result<_, _>>().unwrap();
            assert_eq!(chunks.len(), 1);
            let chunk = &chunks[0];
            assert_eq!(i64::try_from(chunk.decode_time).unwrap(), *start);
            assert_eq!(chunk.samples.iter().map(|s| s.duration).sum::<u32>(), *duration);
            let mut dts = *start;
            for sample in &chunk.samples {
                assert!(sample.duration > 0, "decode times increase");
                dts += i64::from(sample.duration);
            }
            assert_eq!(dts, *start + i64::from(*duration));
            assert!(chunk.sequence_number > sequence);
            sequence = chunk.sequence_number;
            payloads.extend(chunk.samples.iter().map(|sample| sample.data.clone()));
        }
    }
    payloads
}
