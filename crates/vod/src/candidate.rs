use std::sync::Arc;
use std::time::Duration;

use media::mp4::{SampleEntry, TrackIndex};
use media::{Codec, Error, Kind, cmaf};

use crate::bandwidth::{Bandwidth, FrameRate};
use crate::lead::Lead;
use crate::left_out::LeftOut;
use crate::plan::{self, Grid};
use crate::samples::first_from;
use crate::scan::Scan;
use crate::shift::{Beginning, Timeline};
use crate::source::Source;
use crate::track::{Row, Track, write_head};
use crate::{Settings, time};

/// Limits of a track. Sensible tracks stay far below them.
mod limits {
    /// Samples: enough for four days of AAC.
    pub(super) const SAMPLES: u32 = 1 << 24;
    /// Keyframes: enough for 11 hours of 25 a second. What is known of them takes 16 bytes each.
    pub(super) const KEYFRAMES: u32 = 1 << 20;
    /// Segments: enough for six days of 2 s each.
    pub(super) const SEGMENTS: usize = 1 << 18;
    /// Samples of one segment: enough for hours without a keyframe.
    pub(super) const SEGMENT_SAMPLES: u32 = 1 << 20;
}

/// Shortest media time between I-frames. Trick play does not need more of them.
const IFRAMES_APART: Duration = Duration::from_millis(500);

/// How much audio is decoded before the first audible sample. Opus needs 80 ms (RFC 7845 4.6), AAC
/// a frame or two.
const PREROLL: Duration = Duration::from_millis(100);

/// A track that can be packaged, while it is being cut.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Position of its file among the files of the title.
    pub(crate) source: usize,
    pub(crate) index: TrackIndex,
    pub(crate) codec: Codec,
    scan: Scan,
    /// Numbers of the samples that begin segments.
    cuts: Vec<u32>,
    /// Number of the sample behind its last one.
    last: u32,
    /// Whether this is video of a file that has another video track with a higher bitrate. It is
    /// then another view, not a rendition.
    pub(crate) alternate: bool,
    /// Samples before this time only prepare the decoder.
    from: i64,
    /// The video samples that only prepare the decoder.
    lead: Option<Lead>,
}

/// Why a file or track is not in the title.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// Entry in the title's list.
    pub(crate) left_out: LeftOut,
    /// Error of the title if nothing else can be packaged.
    pub(crate) error: Error,
}

impl Refusal {
    /// Refusal of a whole file.
    pub(crate) fn whole(source: &Source, error: Error) -> Self {
        let (file, reason) = (source.name.clone(), error.to_string());
        Self { left_out: LeftOut { file, track: None, codec: String::new(), reason }, error }
    }

    pub(crate) fn of(source: &Source, track: &TrackIndex, error: Error) -> Self {
        let left_out = LeftOut {
            file: source.name.clone(),
            track: Some(track.track.id),
            codec: track.track.codec.rfc6381().into_owned(),
            reason: error.to_string(),
        };
        Self { left_out, error }
    }
}

fn unsupported(what: String) -> Error {
    Error::Unsupported { what: what.into(), at: 0 }
}

/// The codec of samples with this description, or the reason why they cannot be packaged.
fn packageable(track: &TrackIndex, description: Option<u16>) -> Result<Codec, Error> {
    let description = description.and_then(|at| track.descriptions.get(usize::from(at)));
    // A segment has one header, and our headers have one sample description per track.
    let description = description
        .ok_or_else(|| unsupported(format!("a change of sample description in {track}")))?;
    if let Codec::Other(other) = &description.codec {
        let fourcc = String::from_utf8_lossy(&other.fourcc);
        return Err(unsupported(match &other.fourcc {
            b"encv" | b"enca" => format!("encryption of {track}"),
            _ => format!("codec '{}' of track {}", fourcc.trim(), track.track.id),
        }));
    }
    Ok(description.codec.clone())
}

/// The codec for the segments of a track, and facts about its samples; or the reason why it cannot be packaged.
fn examine(index: &TrackIndex) -> Result<(Codec, Scan), Error> {
    if let Some(problem) = &index.problem {
        return Err(problem.clone());
    }
    let Some(first) = index.samples.get(0) else {
        // A codec that is never packaged is a better reason than that the track is empty.
        return Err(match packageable(index, Some(0)) {
            Err(error) if index.track.kind() != Kind::Video => error,
            _ => Error::Malformed { what: format!("{index} has no samples").into(), at: 0 },
        });
    };
    // Each frame of PCM is a sample. Its codec is a better reason than their number.
    packageable(index, Some(first.description))?;
    let limit = |what: &str, value: u32, limit: u32| {
        let what = format!("{what} of {index}").into();
        Err(Error::Limit { what, at: 0, value: value.into(), limit: limit.into() })
    };
    let count = index.samples.len();
    if count > limits::SAMPLES {
        return limit("samples", count, limits::SAMPLES);
    }
    let keyframes = index.samples.sync_count();
    if index.track.kind() == Kind::Video && keyframes > limits::KEYFRAMES {
        return limit("keyframes", keyframes, limits::KEYFRAMES);
    }
    let scan = Scan::of(index);
    let codec = packageable(index, scan.description)?;
    if codec.kind() == Kind::Video && scan.keyframes.is_empty() {
        return Err(unsupported(format!("{index} without keyframes")));
    }
    Ok((codec, scan))
}

impl Candidate {
    /// Takes a track. If it cannot be packaged, returns it with the reason.
    pub(crate) fn new(source: usize, index: TrackIndex) -> Result<Self, Box<(TrackIndex, Error)>> {
        match examine(&index) {
            Ok((codec, scan)) => Ok(Self {
                source,
                codec,
                scan,
                cuts: Vec::new(),
                last: index.samples.len(),
                alternate: false,
                // For video, `lead` holds the samples that only prepare the decoder.
                from: i64::MIN,
                lead: None,
                index,
            }),
            Err(error) => Err(Box::new((index, error))),
        }
    }

    /// Bytes of memory of what is known of it besides its index.
    pub(crate) fn memory(&self) -> usize {
        self.scan.memory()
    }

    pub(crate) fn timescale(&self) -> u32 {
        self.index.track.timescale
    }

    /// Bit rate in bits per second.
    pub(crate) fn bitrate(&self) -> u64 {
        let start = self.index.samples.get(0).map_or(0, |first| first.dts);
        let span = self.index.samples.end_dts().saturating_sub(start);
        let span = u128::try_from(span).unwrap_or_default().max(1);
        let bits = u128::from(self.scan.bytes) * 8 * u128::from(self.timescale());
        u64::try_from(bits / span).unwrap_or(u64::MAX)
    }

    /// Presentation times of the keyframes, in the track's units.
    pub(crate) fn keyframes(&self) -> impl Iterator<Item = i64> + '_ {
        self.scan.keyframes.iter().map(|(_, time)| *time)
    }

    pub(crate) fn target(&self, settings: &Settings) -> i64 {
        time::ticks(settings.segment_target, self.timescale()).max(1)
    }

    /// Cuts video at its own keyframes.
    pub(crate) fn cut(&mut self, settings: &Settings) {
        let keyframes: Vec<i64> = self.keyframes().collect();
        let cuts = plan::cut(&keyframes, self.index.end(), self.target(settings));
        self.cut_at(cuts.into_iter());
    }

    /// Cuts video at some of its keyframes.
    pub(crate) fn cut_at(&mut self, keyframes: impl Iterator<Item = usize>) {
        let number = |keyframe: usize| self.scan.keyframes.get(keyframe).map(|(number, _)| *number);
        self.cuts = keyframes.filter_map(number).collect();
        self.trim();
        self.begin_late();
    }

    /// Cuts audio where the grid's segments end. All audio samples are sync samples.
    pub(crate) fn cut_by(&mut self, grid: &Grid) {
        let samples = &self.index.samples;
        // A decoder needs some samples before the first presented one. And a player that shows the
        // frames before presentation time 0 must not wait for their audio.
        let start = self.index.edit.start.min(grid.start().unwrap_or(i64::MAX));
        self.from = start;
        let preroll = time::ticks(PREROLL, self.timescale());
        let mut next = first_from(samples, start.saturating_sub(preroll));
        while let Some(sample) = samples.get(next) {
            self.cuts.push(next);
            let after = first_from(samples, grid.after(sample.dts.max(start)));
            // Times that run backwards would lead to endless cuts.
            if after <= next || self.cuts.len() > limits::SEGMENTS {
                break;
            }
            next = after;
        }
        self.trim();
    }

    /// The grid for cutting audio: the video's segments in the audio's units, or only the target.
    pub(crate) fn grid(&self, video: Option<&Self>, settings: &Settings) -> Grid {
        let (target, end) = (self.target(settings), self.index.end());
        let Some(video) = video else { return Grid::new(Vec::new(), 0, end, target) };
        let here = |at| time::rescale_up(at, video.timescale(), self.timescale());
        Grid::new(video.starts().map(here).collect(), here(video.index.end()), end, target)
    }

    /// Drops segments at the beginning and at the end, if the edit list presents nothing of them.
    fn trim(&mut self) {
        let (edit, samples) = (self.index.edit, &self.index.samples);
        let start = |cut: u32| samples.get(cut).map_or(i64::MAX, |sample| sample.pts());
        // For audio, `cut_by` has already left only the little that is needed before.
        let hidden = self.cuts.iter().skip(1).take_while(|cut| start(**cut) <= edit.start).count();
        self.cuts.drain(..hidden);
        while let [_, .., cut] = self.cuts[..]
            && edit.end.is_some_and(|end| start(cut) >= end)
        {
            self.last = cut;
            self.cuts.pop();
        }
        // Nothing that is kept needs what is decoded after it.
        while let Some(end) = edit.end
            && self.cuts.last().is_some_and(|cut| self.last > cut + 1)
            && start(self.last - 1) >= end
        {
            self.last -= 1;
        }
    }

    /// Lets video begin at the last keyframe from which all presented frames can be decoded.
    fn begin_late(&mut self) {
        let end = self.cuts.get(1).copied().unwrap_or(self.last);
        let Some(first) = self.cuts.first_mut() else { return };
        let (edit, keyframes) = (self.index.edit, &self.scan.keyframes);
        let before = keyframes.partition_point(|(_, time)| *time <= edit.start);
        if let Some((number, _)) = before.checked_sub(1).and_then(|last| keyframes.get(last))
            && (*first..end).contains(number)
        {
            *first = *number;
        }
        self.lead = Lead::of(&self.index.samples, &edit, *first..end, self.index.track.timescale);
    }

    /// Presentation times at which the segments begin, in the track's units.
    pub(crate) fn starts(&self) -> impl Iterator<Item = i64> + '_ {
        self.cuts.iter().filter_map(|cut| Some(self.sample(*cut)?.pts()))
    }

    /// A sample with its times in the title, in the track's units.
    fn sample(&self, number: u32) -> Option<SampleEntry> {
        let mut sample = self.index.samples.get(number)?;
        if let Some(lead) = &self.lead {
            lead.place(number, &mut sample);
        }
        Some(sample)
    }

    /// Duration of the longest segment, in the track's units.
    pub(crate) fn longest(&self) -> i64 {
        let starts: Vec<i64> = self.starts().chain([self.index.end()]).collect();
        let lengths = starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        lengths.max().unwrap_or_default()
    }

    /// Times at which the track is first decoded and presented.
    pub(crate) fn beginning(&self) -> Option<Beginning> {
        let first = self.sample(*self.cuts.first()?)?;
        let presented = first.pts().max(self.from);
        Some(Beginning { decoded: first.dts, presented, timescale: self.timescale() })
    }

    /// The finished track. The head of every segment is written once, to learn its size and to
    /// prove that it can be written.
    pub(crate) fn into_track(
        mut self,
        source: &Source,
        name: String,
        id: u32,
        timeline: Timeline,
    ) -> Result<Track, Box<Refusal>> {
        match self.measure(source, name, id, timeline) {
            Ok(track) => Ok(track),
            Err(error) => Err(Box::new(Refusal::of(source, &self.index, error))),
        }
    }

    fn measure(
        &mut self,
        source: &Source,
        name: String,
        id: u32,
        timeline: Timeline,
    ) -> Result<Track, Error> {
        if self.cuts.len() > limits::SEGMENTS {
            let (value, limit) = (self.cuts.len() as u64, limits::SEGMENTS as u64);
            let what = format!("segments of {}", self.index).into();
            return Err(Error::Limit { what, at: 0, value, limit });
        }
        let timescale = self.timescale();
        let language = self.index.track.language;
        let media = media::Track { id, timescale, codec: self.codec.clone(), language };
        // Without a common description there is no candidate.
        let display = self.index.display(self.scan.description.unwrap_or_default());
        let header = cmaf::header_shown(&[&media], &display)?;
        let shift = timeline.to_stream(timescale);
        let tail = if self.scan.usual > 0 { self.scan.usual } else { (timescale / 25).max(1) };
        let mut track = Track {
            name,
            media,
            language: media::language::tag(language),
            label: self.index.label.take().unwrap_or_default(),
            default: self.index.enabled,
            alternate: self.alternate,
            bandwidth: Bandwidth::default(),
            frame_rate: None,
            iframe_bandwidth: 0,
            source: source.name.clone(),
            header,
            display,
            file: Arc::clone(&source.file),
            end: self.index.end().saturating_add(shift),
            samples: std::mem::take(&mut self.index.samples),
            lead: self.lead.take(),
            shift,
            origin: timeline.shift.in_timescale(timescale),
            tail,
            rows: Vec::with_capacity(self.cuts.len()),
            last: self.last,
            iframes: Vec::new(),
        };
        self.rows(&mut track)?;
        self.lengthen(&mut track);
        let lengths: Vec<_> = track.segments().map(|each| (each.duration, each.bytes)).collect();
        track.bandwidth = Bandwidth::of(&lengths, timescale);
        if self.codec.kind() == Kind::Video {
            self.frames(&mut track);
        }
        Ok(track)
    }

    fn rows(&self, track: &mut Track) -> Result<(), Error> {
        let ends = self.cuts.iter().skip(1).copied().chain([self.last]);
        let (mut entries, mut head) = (Vec::new(), Vec::new());
        for (number, (&first, end)) in self.cuts.iter().zip(ends).enumerate() {
            let count = end.saturating_sub(first);
            if count > limits::SEGMENT_SAMPLES {
                let (value, limit) = (count.into(), limits::SEGMENT_SAMPLES.into());
                let what = format!("samples of a segment of {}", self.index).into();
                return Err(Error::Limit { what, at: 0, value, limit });
            }
            entries.clear();
            head.clear();
            track.entries_into(first..end, &mut entries);
            let layout = write_head(&mut head, track.media.id, number as u32, &entries)?;
            let start = entries.first().map_or(0, |sample| sample.pts());
            let bytes = u32::try_from(layout.len).map_err(|_| Error::Limit {
                what: format!("bytes of a segment of {}", self.index).into(),
                at: 0,
                value: layout.len as u64,
                limit: u32::MAX.into(),
            })?;
            track.rows.push(Row { first, bytes, start });
        }
        Ok(())
    }

    /// Gives the last sample the usual duration where the file gives it none, because players do
    /// not show a sample without duration.
    fn lengthen(&self, track: &mut Track) {
        let last = self.last.checked_sub(1).and_then(|last| track.samples.get(last));
        let silent = last.filter(|last| last.duration == 0 && self.index.edit.end.is_none());
        let start = track.rows.last().filter(|row| row.start >= track.end).map(|row| row.start);
        let from = silent.map(|last| last.pts().saturating_add(track.shift)).max(start);
        if let Some(from) = from {
            track.end = track.end.max(from.saturating_add(track.tail.into()));
        }
    }

    /// Sets properties that only video has: its frame rate, and the I-frames for trick play.
    fn frames(&self, track: &mut Track) {
        let timescale = track.media.timescale;
        let first = track.rows.first().map_or(track.last, |row| row.first);
        // These are the file's own times. Those of a lead are no frame rate.
        let start = track.samples.get(first).map_or(0, |sample| sample.dts);
        let end = track.samples.get(track.last).map_or(track.samples.end_dts(), |next| next.dts);
        let span = u64::try_from(end.saturating_sub(start)).unwrap_or_default();
        let count = track.last.saturating_sub(first);
        track.frame_rate = FrameRate::of(count, span, self.scan.usual, timescale);
        let apart = time::ticks(IFRAMES_APART, timescale);
        let mut next = i64::MIN;
        for (number, time) in &self.scan.keyframes {
            if (first..track.last).contains(number) && *time >= next {
                track.iframes.push(*number);
                next = time.saturating_add(apart);
            }
        }
        track.iframes.shrink_to_fit();
        let rate = |frame: crate::Segment| {
            let bits = u128::from(frame.bytes) * 8 * u128::from(timescale);
            u64::try_from(bits.div_ceil(frame.duration.max(1).into())).unwrap_or(u64::MAX)
        };
        track.iframe_bandwidth = track.iframes().map(rate).max().unwrap_or_default();
    }
}

impl Track {
    /// Bytes of memory of the track.
    pub(crate) fn memory(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Row>();
        let lead = self.lead.as_ref().map_or(0, Lead::memory);
        self.samples.memory() + lead + rows + self.iframes.capacity() * size_of::<u32>()
    }
}
