use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf;
use payload::FileVersion;

use crate::left_out::LeftOut;
use crate::rendered::{self, Rendered, Shelf, Slot, hash};
use crate::{Shift, Text, Track};

/// A file, or a folder of renditions, packaged.
///
/// Everything is decided when it is made; after that it only answers, from memory, apart from
/// what says that it reads. The media itself stays in the files.
///
/// # Time
/// *Presentation time* is the movie's: 0 is when its first track is first presented. That is where
/// its edit lists let it begin, unless its media are later (a piece of a recording keeps the times
/// of the whole). Where an edit list begins between keyframes, the frames before are shown for an
/// instant each, and the first of these is at 0.
/// What only prepares decoders lies before. *Stream time* is presentation time plus [`shift`](Self::shift), so that no decode time is
/// negative (CMAF has no way to say so): segments and [`Sample`](crate::Sample)s are in stream
/// time, in their track's timescale. For DASH the shift is `presentationTimeOffset`.
#[derive(Debug)]
pub struct Title {
    /// Path below the root.
    pub path: String,
    /// What the files were, and how they are cut. Other content has another version.
    pub version: Version,
    /// Video by falling bitrate, then alternate views, then audio. At least one.
    pub tracks: Vec<Track>,
    /// Subtitles.
    pub texts: Vec<Text>,
    /// Presentation time at which the last track ends.
    pub duration: Duration,
    /// From presentation time to stream time.
    pub shift: Shift,
    /// Whether all renditions are cut at the same times, so that a player can go from one to
    /// another at any segment.
    pub aligned: bool,
    /// What the files hold and the title does not, and why.
    pub left_out: Vec<LeftOut>,
    /// For each segment of the first track, how much of the file plays up to its end, rising;
    /// nothing where the title is made of several files. For pacing the file itself.
    pub reach: Vec<Reach>,
    pub(crate) files: Vec<(Arc<File>, FileVersion)>,
    pub(crate) shelf: Shelf,
}

/// Identity of a title's content and form: the same as long as every byte of every segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub(crate) u64);

/// 16 hexadecimal digits.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How far into its file a movie plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Up to this presentation time.
    pub until: Duration,
    /// No byte of media at or after this offset is needed.
    pub offset: u64,
}

impl Title {
    /// The track of this name.
    pub fn track(&self, name: &str) -> Option<&Track> {
        self.tracks.iter().find(|track| track.name == name)
    }

    /// The subtitles of this name.
    pub fn text(&self, name: &str) -> Option<&Text> {
        self.texts.iter().find(|text| text.name == name)
    }

    /// One CMAF header for several tracks, by their positions in [`tracks`](Self::tracks): their
    /// segments one after the other, in the order of their times, are a fragmented MP4. Frames
    /// are turned as those of the first video among them.
    ///
    /// # Errors
    /// None but for no tracks at all: each was written in a header of its own.
    pub fn header(&self, tracks: &[usize]) -> Result<Bytes, media::Error> {
        let tracks: Vec<_> = tracks.iter().filter_map(|at| self.tracks.get(*at)).collect();
        let video = tracks.iter().find(|track| track.media.kind() == media::Kind::Video);
        let matrix = video.map_or(cmaf::UPRIGHT, |track| track.matrix);
        let media: Vec<_> = tracks.iter().map(|track| &track.media).collect();
        cmaf::header_turned(&media, matrix)
    }

    /// The tracks a player that takes one of each kind is given: the best video and the default
    /// audio, as positions in [`tracks`](Self::tracks).
    pub fn chosen(&self) -> Vec<usize> {
        let video = self.tracks.iter().position(|track| track.media.kind() == media::Kind::Video);
        let audio = |track: &&(usize, &Track)| track.1.media.kind() == media::Kind::Audio;
        let mut audios: Vec<_> = self.tracks.iter().enumerate().collect();
        audios.retain(|track| audio(&track));
        let default = audios.iter().find(|(_, track)| track.default).or(audios.first());
        video.into_iter().chain(default.map(|(at, _)| *at)).collect()
    }

    /// Presentation time, rounded down, of a stream time of a track.
    pub fn presentation_time(&self, track: &Track, time: i64) -> Duration {
        let timescale = track.media.timescale;
        crate::time::duration(time.saturating_sub(self.shift.in_timescale(timescale)), timescale)
    }

    /// Whether the open files still are as they were when the title was made: nobody has written
    /// into them. A file that was replaced by another of its name goes on unchanged here.
    pub fn is_intact(&self) -> bool {
        self.files.iter().all(|(file, stamp)| {
            file.metadata().is_ok_and(|metadata| FileVersion::of(&metadata) == *stamp)
        })
    }

    /// Bytes of memory it holds, with room for what is [`rendered`](Self::rendered) of it.
    pub fn memory(&self) -> usize {
        let tracks: usize = self.tracks.iter().map(Track::memory).sum();
        let texts: usize = self.texts.iter().map(Text::memory).sum();
        let entries = |track: &Track| track.rows.len() + track.iframes.len();
        let rendered = self.tracks.iter().map(entries).sum::<usize>() * rendered::EACH;
        // What is not counted in detail: names, headers, codec configurations.
        4096 + tracks + texts + rendered + self.reach.capacity() * size_of::<Reach>()
    }

    /// What was rendered of this title by this name, or what `render` makes of it now. It is kept
    /// as long as the title, so `name` is to be one of few; others that ask for it wait while it is
    /// made.
    pub fn rendered(&self, name: &str, render: impl FnOnce() -> Bytes) -> Rendered {
        let slot = {
            let mut slots = self.shelf.slots();
            // Two playlists a track, one of each text, a playlist and a manifest of all, twice over.
            let room = slots.len() < 4 * (1 + self.tracks.len() + self.texts.len());
            match slots.get(name) {
                Some(slot) => Arc::clone(slot),
                None if room => Arc::clone(slots.entry(name.into()).or_default()),
                None => Slot::default(),
            }
        };
        let made = || {
            let bytes = render();
            Rendered { hash: hash(&bytes), bytes }
        };
        slot.get_or_init(made).clone()
    }

    /// Whether [`rendered`](Self::rendered) answers at once.
    pub fn is_rendered(&self, name: &str) -> bool {
        self.shelf.slots().get(name).is_some_and(|slot| slot.get().is_some())
    }
}
