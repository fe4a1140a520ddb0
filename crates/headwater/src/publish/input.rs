//! The files that are published.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use media::clock::Unwrapper;
use media::flv::{Demuxer, Event, Message, Metadata, Packetizer, TIMESCALE, Tag, TagKind, TrackId};
use media::{Codec, Sample, Track, mp4};

use super::stamper::{self, Stamper};

/// A file to publish. All that is due comes with its time, in milliseconds from the start.
pub(super) enum Media {
    Mp4(Mp4),
    Flv(Flv),
}

impl Media {
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let file = File::open(path)?;
        let mut magic = [0; 3];
        file.read_exact_at(&mut magic, 0).context("too short for a media file")?;
        if &magic == b"FLV" {
            Flv::open(file).map(Self::Flv)
        } else {
            Mp4::open(file).map(Self::Mp4)
        }
    }

    /// Returns `onMetaData` and the sequence headers, unless the file's own tags contain them.
    pub(super) fn headers(&self) -> anyhow::Result<Vec<Message>> {
        match self {
            Self::Mp4(file) => file.headers(),
            Self::Flv(_) => Ok(Vec::new()),
        }
    }

    /// Returns the tracks with their first configurations.
    pub(super) fn tracks(&self) -> anyhow::Result<Vec<(TrackId, Codec)>> {
        match self {
            Self::Mp4(file) => Ok(file.tracks().map(|(id, codec)| (id, codec.clone())).collect()),
            Self::Flv(file) => file.tracks(),
        }
    }

    pub(super) fn has_video(&self) -> bool {
        match self {
            Self::Mp4(file) => file.has_video(),
            Self::Flv(file) => file.has_video,
        }
    }

    /// Returns all that is due in one turn through the file; the first turn is 0.
    pub(super) fn all_due(
        &self,
        turn: i64,
    ) -> Box<dyn Iterator<Item = anyhow::Result<(i64, Due<'_>)>> + '_> {
        match self {
            Self::Mp4(file) => Box::new(file.all_due(turn)),
            Self::Flv(file) => Box::new(file.all_due(turn)),
        }
    }
}

/// What is due at a time, as the file has it.
pub(super) enum Due<'a> {
    /// A sample of an MP4.
    Sample(&'a Output, &'a Track, Sample),
    /// A tag of an FLV, with its new time in milliseconds.
    Tag(i64, Tag),
}

impl Due<'_> {
    /// Puts a stamp of the current time into it, if it is video.
    pub(super) fn stamped(self, stamper: &mut Stamper) -> anyhow::Result<Self> {
        match self {
            Self::Sample(output, track, mut sample) if track.kind() == media::Kind::Video => {
                sample.data = stamper::stamp(&track.codec, &sample.data)?.into();
                Ok(Self::Sample(output, track, sample))
            }
            Self::Tag(at, mut tag) if tag.kind == TagKind::Video => {
                let stamped = stamper
                    .tag(&tag.payload)
                    .with_context(|| format!("tag at byte {}", tag.position))?;
                tag.payload = stamped.map_or(tag.payload, Into::into);
                Ok(Self::Tag(at, tag))
            }
            other => Ok(other),
        }
    }

    /// Makes the message of RTMP.
    pub(super) fn message(&self) -> anyhow::Result<Message> {
        match self {
            Self::Sample(output, _, sample) => Ok(output.packetizer.sample(sample)?),
            Self::Tag(at, tag) => Ok(Message::new(tag.kind, *at, &[&tag.payload])?),
        }
    }
}

/// A sample of a file, with what a protocol without FLV's messages must know of it.
pub(super) struct Unit<'a> {
    pub(super) track: TrackId,
    pub(super) codec: &'a Codec,
    /// Units per second of the sample's times.
    pub(super) timescale: u32,
    pub(super) sample: Sample,
}

/// Makes samples of what is due. It remembers the codec configurations of the tags before.
#[derive(Default)]
pub(super) struct Samples {
    demuxer: Demuxer,
    codecs: BTreeMap<TrackId, Codec>,
}

impl Samples {
    /// Returns the samples. A sample of an MP4 is one, and few tags have more than one.
    pub(super) fn of<'a>(&'a mut self, due: Due<'a>) -> Vec<Unit<'a>> {
        let (at, tag) = match due {
            Due::Sample(output, track, sample) => {
                let Track { codec, timescale, .. } = track;
                return vec![Unit { track: output.id, codec, timescale: *timescale, sample }];
            }
            Due::Tag(at, tag) => (at, tag),
        };
        // The demuxer unwraps 32 bits again.
        self.demuxer.handle_tag(tag.kind, at as u32, &tag.payload);
        let mut samples = Vec::new();
        while let Some(event) = self.demuxer.poll_event() {
            match event {
                Event::Track { track, codec } => {
                    self.codecs.insert(track, codec);
                }
                Event::Sample { track, sample, .. } => samples.push((track, sample)),
                Event::Problem(problem) => tracing::warn!(%problem, "left out"),
                Event::Metadata(_) | Event::End { .. } => {}
            }
        }
        let unit = |(track, sample)| {
            let codec = self.codecs.get(&track)?;
            Some(Unit { track, codec, timescale: TIMESCALE, sample })
        };
        samples.into_iter().filter_map(unit).collect()
    }
}

/// A track of an MP4 that is published.
pub(super) struct Output {
    id: TrackId,
    packetizer: Packetizer,
}

pub(super) struct Mp4 {
    source: mp4::OnDisk<File>,
    index: mp4::Index,
    /// One for each track of the index; `None` for a track that cannot be published.
    outputs: Vec<Option<Output>>,
    /// How many milliseconds before 0 the earliest track starts to decode.
    lead: i64,
}

impl Mp4 {
    fn open(file: File) -> anyhow::Result<Self> {
        let source = mp4::OnDisk::new(file)?;
        let index = mp4::Index::read(&source)?;
        let (mut video, mut audio) = (0, 0);
        let mut outputs = Vec::with_capacity(index.tracks.len());
        for (number, track) in index.tracks.iter().enumerate() {
            let kind = track.track.kind();
            let next = match kind {
                media::Kind::Video => &mut video,
                media::Kind::Audio => &mut audio,
                media::Kind::Other => {
                    outputs.push(None);
                    continue;
                }
            };
            let made = match &track.problem {
                Some(problem) => Err(problem.clone()),
                None => Packetizer::new(*next, &track.track.codec, track.track.timescale),
            };
            match made {
                Ok(packetizer) => {
                    outputs.push(Some(Output { id: TrackId { kind, number: *next }, packetizer }));
                    *next += 1;
                }
                Err(error) => {
                    tracing::warn!(track = number, %error, "track left out");
                    outputs.push(None);
                }
            }
        }
        ensure!(outputs.iter().any(Option::is_some), "no track that can be published");
        let mut this = Self { source, index, outputs, lead: 0 };
        let first = |track: &mp4::TrackIndex| {
            let first = track.samples.iter().next()?;
            Some(live::rescale(first.dts, track.track.timescale, 1000))
        };
        this.lead =
            this.published().filter_map(|at| first(&this.index.tracks[at])).min().unwrap_or(0);
        this.lead = (-this.lead).max(0);
        Ok(this)
    }

    fn published(&self) -> impl Iterator<Item = usize> {
        self.outputs.iter().enumerate().filter_map(|(at, made)| made.as_ref().map(|_| at))
    }

    fn tracks(&self) -> impl Iterator<Item = (TrackId, &Codec)> {
        let tracks = self.outputs.iter().zip(&self.index.tracks);
        tracks.filter_map(|(made, track)| Some((made.as_ref()?.id, &track.track.codec)))
    }

    fn has_video(&self) -> bool {
        self.tracks().any(|(_, codec)| codec.kind() == media::Kind::Video)
    }

    fn headers(&self) -> anyhow::Result<Vec<Message>> {
        let mut metadata = Metadata::describe(self.tracks().map(|(_, codec)| codec));
        metadata.duration = Some(self.index.duration().as_secs_f64());
        let mut out = vec![Message::metadata(0, &metadata)?];
        for output in self.outputs.iter().flatten() {
            out.push(output.packetizer.sequence_header(0)?);
        }
        Ok(out)
    }

    fn all_due(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Due<'_>)>> {
        // The base is counted in microseconds: with milliseconds, a long loop would drift.
        let micros = i64::try_from(self.index.duration().as_micros()).unwrap_or(i64::MAX);
        let base = micros.saturating_mul(turn) + self.lead * 1000;
        mp4::Reader::new(self.index.merge(self.published()), &self.source).map(move |read| {
            let mut read = read?;
            let track = &self.index.tracks[read.track].track;
            let timescale = track.timescale;
            read.sample.dts += live::rescale(base, 1_000_000, timescale);
            let at = live::rescale(read.sample.dts, timescale, 1000);
            let output = self.outputs[read.track].as_ref().context("a track left out")?;
            Ok((at, Due::Sample(output, track, read.sample)))
        })
    }
}

/// An FLV file. It is read twice: once to learn its length, then tag by tag while it is sent.
pub(super) struct Flv {
    file: File,
    has_video: bool,
    /// Time of the earliest audio or video tag, in milliseconds.
    first: i64,
    /// Milliseconds from `first` to the start of the next turn.
    turn: i64,
}

impl Flv {
    fn open(file: File) -> anyhow::Result<Self> {
        let mut span: Option<(i64, i64)> = None;
        let (mut video, mut audio) = (0, 0);
        for read in Tags::of(&file) {
            let (time, tag) = read?;
            match tag.kind {
                TagKind::Video => video += 1,
                TagKind::Audio => audio += 1,
                TagKind::Script => {}
            }
            if let Some(time) = time {
                let (first, last) = span.unwrap_or((time, time));
                span = Some((first.min(time), last.max(time)));
            }
        }
        let Some((first, last)) = span else { bail!("no audio or video in the file") };
        // The last tag lasts as long as the average tag of its kind.
        let frames = if video > 0 { video } else { audio };
        let frame: i64 = (last - first) / frames.max(1);
        Ok(Self { file, has_video: video > 0, first, turn: last - first + frame.clamp(1, 1000) })
    }

    /// Reads the file for its tracks. Its tags alone tell them.
    fn tracks(&self) -> anyhow::Result<Vec<(TrackId, Codec)>> {
        let mut demuxer = Demuxer::new();
        let mut tracks: Vec<(TrackId, Codec)> = Vec::new();
        for read in Tags::of(&self.file) {
            let (_, tag) = read?;
            demuxer.handle_tag(tag.kind, tag.timestamp, &tag.payload);
            while let Some(event) = demuxer.poll_event() {
                if let Event::Track { track, codec } = event
                    && !tracks.iter().any(|(known, _)| *known == track)
                {
                    tracks.push((track, codec));
                }
            }
        }
        Ok(tracks)
    }

    fn all_due(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Due<'_>)>> {
        Tags::of(&self.file).map(move |read| {
            let (time, tag) = read?;
            let at = time.map_or(0, |time| time - self.first) + turn * self.turn;
            Ok((at, Due::Tag(at, tag)))
        })
    }
}

/// The tags of a file in file order. Audio and video tags come with their times in milliseconds.
struct Tags<'a> {
    file: &'a File,
    /// Offset to read from; `None` at the end.
    at: Option<u64>,
    reader: media::flv::Reader,
    /// The 32-bit timestamps of a long recording may wrap.
    clock: Unwrapper,
    buffer: Box<[u8]>,
}

impl<'a> Tags<'a> {
    fn of(file: &'a File) -> Self {
        Self {
            file,
            at: Some(0),
            reader: media::flv::Reader::new(),
            clock: Unwrapper::new(32),
            buffer: vec![0; 1 << 16].into(),
        }
    }

    fn read(&mut self) -> anyhow::Result<Option<(Option<i64>, Tag)>> {
        loop {
            if let Some(tag) = self.reader.poll_tag()? {
                let time = match tag.kind {
                    TagKind::Script => None,
                    _ => Some(self.clock.unwrap(u64::from(tag.timestamp))),
                };
                return Ok(Some((time, tag)));
            }
            let Some(at) = self.at else { return Ok(None) };
            let size = self.file.read_at(&mut self.buffer, at)?;
            self.reader.handle_bytes(&self.buffer[..size]);
            self.at = (size > 0).then_some(at + size as u64);
            if size == 0 {
                self.reader.finish()?;
            }
        }
    }
}

impl Iterator for Tags<'_> {
    type Item = anyhow::Result<(Option<i64>, Tag)>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read().transpose();
        if matches!(read, Some(Err(_))) {
            self.at = None;
        }
        read
    }
}
