use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use media::cmaf;
use payload::{FileVersion, OpenFile};

use crate::left_out::LeftOut;
use crate::rendered::{self, Rendered, Shelf, Slot, hash};
use crate::{Shift, Text, Track};

/// A packaged file or folder of renditions.
///
/// Everything is decided when a title is made. After that it answers from memory, except for
/// functions that are documented to read. The media stay in the files.
///
/// # Time
/// *Presentation time* is the movie's: 0 is when its first track is first presented. This is where
/// its edit lists let it begin, unless its media begin later, as in a piece of a recording that
/// keeps the times of the whole. Where an edit list begins between keyframes, the frames before it
/// are shown for an instant each, and the first of these is at 0. Samples that only prepare
/// decoders come before 0.
///
/// *Stream time* is presentation time plus [`shift`](Self::shift), so that no decode time is
/// negative: CMAF has no negative decode times. Segments and [`Sample`](crate::Sample)s are in
/// stream time, in their track's timescale. In DASH the shift is `presentationTimeOffset`.
#[derive(Debug)]
pub struct Title {
    /// Path below the root.
    pub path: String,
    /// Identifies the contents of the files and how they are cut. Other contents have another
    /// version.
    pub version: Version,
    /// Video from the highest bitrate to the lowest, then alternate views, then audio. At least one
    /// track.
    pub tracks: Vec<Track>,
    /// Subtitles.
    pub texts: Vec<Text>,
    /// Presentation time at which the last track ends.
    pub duration: Duration,
    /// Offset from presentation time to stream time.
    pub shift: Shift,
    /// Whether all renditions are cut at the same times, so that a player can switch at any
    /// segment.
    pub aligned: bool,
    /// Contents of the files that are not in the title, with reasons.
    pub left_out: Vec<LeftOut>,
    /// For each segment of the first track, how much of the file is needed to play to its end,
    /// rising. Empty where the title has several files. It is used to pace downloads of the file.
    pub reach: Vec<Reach>,
    pub(crate) files: Vec<(Arc<OpenFile>, FileVersion)>,
    pub(crate) shelf: Shelf,
}

/// Identity of a title's content and form. It changes whenever any byte of a segment changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version(pub(crate) u64);

/// 16 hexadecimal digits.
impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How much of its file a movie needs to play up to some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Presentation time up to which it plays.
    pub until: Duration,
    /// Offset in the file. No media byte at or after it is needed.
    pub offset: u64,
}

impl Title {
    /// The track with this name.
    pub fn track(&self, name: &str) -> Option<&Track> {
        self.tracks.iter().find(|track| track.name == name)
    }

    /// The subtitles with this name.
    pub fn text(&self, name: &str) -> Option<&Text> {
        self.texts.iter().find(|text| text.name == name)
    }

    /// One CMAF header for several tracks, given by their positions in [`tracks`](Self::tracks).
    /// This header and the tracks' segments in the order of their times are a fragmented MP4. Video
    /// is shown as the first one among them.
    ///
    /// # Errors
    /// There are no tracks. No other error can occur, because each track was written in a header of
    /// its own.
    pub fn header(&self, tracks: &[usize]) -> Result<Bytes, media::Error> {
        let tracks: Vec<_> = tracks.iter().filter_map(|at| self.tracks.get(*at)).collect();
        let video = tracks.iter().find(|track| track.media.kind() == media::Kind::Video);
        let display = video.map_or(cmaf::Display::AS_CODED, |track| track.display.clone());
        let media: Vec<_> = tracks.iter().map(|track| &track.media).collect();
        cmaf::header_shown(&media, &display)
    }

    /// The tracks for a player that takes one of each kind: the best video and the default audio,
    /// as positions in [`tracks`](Self::tracks).
    pub fn chosen(&self) -> Vec<usize> {
        let video = self.tracks.iter().position(|track| track.media.kind() == media::Kind::Video);
        let audio = |track: &&(usize, &Track)| track.1.media.kind() == media::Kind::Audio;
        let mut audios: Vec<_> = self.tracks.iter().enumerate().collect();
        audios.retain(|track| audio(&track));
        let default = audios.iter().find(|(_, track)| track.default).or(audios.first());
        video.into_iter().chain(default.map(|(at, _)| *at)).collect()
    }

    /// Converts a stream time of a track to presentation time, rounded down.
    pub fn presentation_time(&self, track: &Track, time: i64) -> Duration {
        let timescale = track.media.timescale;
        crate::time::duration(time.saturating_sub(self.shift.in_timescale(timescale)), timescale)
    }

    /// Whether the open files are as they were when the title was made: nobody has written into
    /// them. A file that was replaced by another under its name stays unchanged here.
    pub fn is_intact(&self) -> bool {
        self.files.iter().all(|(file, stamp)| file.version().is_ok_and(|now| now == *stamp))
    }

    /// Bytes of memory of the title, including room for its [`rendered`](Self::rendered) texts.
    pub fn memory(&self) -> usize {
        let tracks: usize = self.tracks.iter().map(Track::memory).sum();
        let texts: usize = self.texts.iter().map(Text::memory).sum();
        let entries = |track: &Track| track.rows.len() + track.iframes.len();
        let rendered = self.tracks.iter().map(entries).sum::<usize>() * rendered::EACH;
        // 4096 bytes stand for everything that is not counted in detail: names, headers, codec
        // configurations.
        4096 + tracks + texts + rendered + self.reach.capacity() * size_of::<Reach>()
    }

    /// The text that was rendered for this title under this name, or else the result of `render`.
    /// It is kept as long as the title, so there should be only few names. Concurrent callers wait
    /// while it is rendered.
    pub fn rendered(&self, name: &str, render: impl FnOnce() -> Bytes) -> Rendered {
        let slot = {
            let mut slots = self.shelf.slots();
            // Two playlists per track, one per text, a multivariant playlist and a manifest; all
            // twice.
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

    /// Whether [`rendered`](Self::rendered) can answer at once.
    pub fn is_rendered(&self, name: &str) -> bool {
        self.shelf.slots().get(name).is_some_and(|slot| slot.get().is_some())
    }
}
