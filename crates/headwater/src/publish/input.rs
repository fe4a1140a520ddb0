//! The files that are published.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use media::clock::Unwrapper;
use media::flv::{Message, Metadata, Packetizer, Tag, TagKind};
use media::{Codec, Sample, mp4};

use super::stamper::{self, Stamper};

/// A file to publish. Each message comes with the time it is due, in milliseconds from the start.
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

    pub(super) fn has_video(&self) -> bool {
        match self {
            Self::Mp4(file) => file.has_video(),
            Self::Flv(file) => file.has_video,
        }
    }

    /// Returns the messages of one turn through the file; the first turn is 0.
    pub(super) fn messages(
        &self,
        turn: i64,
    ) -> Box<dyn Iterator<Item = anyhow::Result<(i64, Due<'_>)>> + '_> {
        match self {
            Self::Mp4(file) => Box::new(file.messages(turn)),
            Self::Flv(file) => Box::new(file.messages(turn)),
        }
    }
}

/// A message that is not yet made.
pub(super) enum Due<'a> {
    /// A sample of an MP4.
    Sample(&'a Packetizer, &'a Codec, Sample),
    /// A tag of an FLV, with its new time in milliseconds.
    Tag(i64, Tag),
}

impl Due<'_> {
    /// Makes the message. With a stamper, video carries a stamp of the current time.
    pub(super) fn message(self, stamper: Option<&mut Stamper>) -> anyhow::Result<Message> {
        match self {
            Self::Sample(packetizer, codec, mut sample) => {
                if stamper.is_some() && codec.kind() == media::Kind::Video {
                    sample.data = stamper::stamp(codec, &sample.data)?.into();
                }
                Ok(packetizer.sample(&sample)?)
            }
            Self::Tag(at, tag) => {
                let stamped = match stamper {
                    Some(stamper) if tag.kind == TagKind::Video => stamper
                        .tag(&tag.payload)
                        .with_context(|| format!("tag at byte {}", tag.position))?,
                    _ => None,
                };
                let payload = stamped.as_deref().unwrap_or(&tag.payload);
                Ok(Message::new(tag.kind, at, &[payload])?)
            }
        }
    }
}

pub(super) struct Mp4 {
    source: mp4::OnDisk<File>,
    index: mp4::Index,
    /// One for each track of the index; `None` for a track that cannot be published.
    packetizers: Vec<Option<Packetizer>>,
    /// How many milliseconds before 0 the earliest track starts to decode.
    lead: i64,
}

impl Mp4 {
    fn open(file: File) -> anyhow::Result<Self> {
        let source = mp4::OnDisk::new(file)?;
        let index = mp4::Index::read(&source)?;
        let (mut video, mut audio) = (0, 0);
        let mut packetizers = Vec::with_capacity(index.tracks.len());
        for (number, track) in index.tracks.iter().enumerate() {
            let next = match track.track.kind() {
                media::Kind::Video => &mut video,
                media::Kind::Audio => &mut audio,
                media::Kind::Other => {
                    packetizers.push(None);
                    continue;
                }
            };
            let made = match &track.problem {
                Some(problem) => Err(problem.clone()),
                None => Packetizer::new(*next, &track.track.codec, track.track.timescale),
            };
            match made {
                Ok(packetizer) => {
                    *next += 1;
                    packetizers.push(Some(packetizer));
                }
                Err(error) => {
                    tracing::warn!(track = number, %error, "track left out");
                    packetizers.push(None);
                }
            }
        }
        ensure!(packetizers.iter().any(Option::is_some), "no track that RTMP can carry");
        let mut this = Self { source, index, packetizers, lead: 0 };
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
        self.packetizers.iter().enumerate().filter_map(|(at, made)| made.as_ref().map(|_| at))
    }

    fn has_video(&self) -> bool {
        let mut codecs = self.published().map(|at| &self.index.tracks[at].track.codec);
        codecs.any(|codec| codec.kind() == media::Kind::Video)
    }

    fn headers(&self) -> anyhow::Result<Vec<Message>> {
        let codecs = self.published().map(|at| &self.index.tracks[at].track.codec);
        let mut metadata = Metadata::describe(codecs);
        metadata.duration = Some(self.index.duration().as_secs_f64());
        let mut out = vec![Message::metadata(0, &metadata)?];
        for packetizer in self.packetizers.iter().flatten() {
            out.push(packetizer.sequence_header(0)?);
        }
        Ok(out)
    }

    fn messages(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Due<'_>)>> {
        // The base is counted in microseconds: with milliseconds, a long loop would drift.
        let micros = i64::try_from(self.index.duration().as_micros()).unwrap_or(i64::MAX);
        let base = micros.saturating_mul(turn) + self.lead * 1000;
        mp4::Reader::new(self.index.merge(self.published()), &self.source).map(move |read| {
            let mut read = read?;
            let track = &self.index.tracks[read.track].track;
            let timescale = track.timescale;
            read.sample.dts += live::rescale(base, 1_000_000, timescale);
            let at = live::rescale(read.sample.dts, timescale, 1000);
            let packetizer = self.packetizers[read.track].as_ref().context("a track left out")?;
            Ok((at, Due::Sample(packetizer, &track.codec, read.sample)))
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

    fn messages(&self, turn: i64) -> impl Iterator<Item = anyhow::Result<(i64, Due<'_>)>> {
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
