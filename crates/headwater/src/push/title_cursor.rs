//! The order of a title's segments for one viewer: video and audio by their times.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use live::cursor::Choice;
use media::Kind;
use protocol::push::message::{Audio, Hello, Rendition};
use vod::{Piece, Title, Track};

/// A viewer's place in a title.
#[derive(Debug)]
pub(super) struct TitleCursor {
    title: Arc<Title>,
    /// The video first, then the audio, as far as they exist.
    cursors: Vec<TrackCursor>,
}

/// A viewer's place in one track.
#[derive(Debug, Clone, Copy)]
struct TrackCursor {
    /// Index into the title's tracks.
    track: usize,
    /// Number of the next segment to send, from 0.
    next: u32,
}

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    track: usize,
    number: u32,
    /// Presentation time of its beginning.
    pub(super) start: Duration,
}

impl TitleCursor {
    /// Starts at the beginning, with the tracks that suit these wishes.
    pub(super) fn new(title: Arc<Title>, choice: &Choice) -> Self {
        let video = best(&title, choice);
        let audio = title.chosen().into_iter().find(|at| kind(&title, *at) == Some(Kind::Audio));
        let cursors = video.into_iter().chain(audio).map(|track| TrackCursor { track, next: 0 });
        Self { cursors: cursors.collect(), title }
    }

    pub(super) fn title(&self) -> &Arc<Title> {
        &self.title
    }

    /// The next segment; `None` at the end.
    pub(super) fn next(&self) -> Option<Item> {
        let items = self.cursors.iter().filter_map(|cursor| {
            let track = self.title.tracks.get(cursor.track)?;
            let start = self.title.presentation_time(track, track.timing(cursor.next)?.start);
            Some(Item { track: cursor.track, number: cursor.next, start })
        });
        // At equal times, the first: the video.
        items.min_by_key(|item| item.start)
    }

    /// Where the segment's bytes are.
    pub(super) fn pieces(&self, item: Item) -> Option<Vec<Piece>> {
        self.title.tracks.get(item.track)?.segment(item.number)
    }

    /// Call this when a segment begins to be sent.
    pub(super) fn advance(&mut self, item: Item) {
        if let Some(cursor) = self.cursors.iter_mut().find(|cursor| cursor.track == item.track) {
            cursor.next = item.number + 1;
        }
    }

    /// Goes to the last segment that begins at or before `time`, and to the audio of that moment.
    pub(super) fn seek(&mut self, time: Duration) {
        let mut time = time;
        for cursor in &mut self.cursors {
            let Some(track) = self.title.tracks.get(cursor.track) else { continue };
            cursor.next = track.segment_at(time);
            if track.media.kind() == Kind::Video
                && let Some(segment) = track.timing(cursor.next)
            {
                time = self.title.presentation_time(track, segment.start).min(time);
            }
        }
    }

    /// Follows the video that suits these wishes, from the next segment on.
    pub(super) fn choose(&mut self, choice: &Choice) {
        if let Some(best) = best(&self.title, choice) {
            self.follow(best);
        }
    }

    /// Follows this video, an index into the title's tracks, from the next segment on.
    pub(super) fn follow(&mut self, video: usize) {
        let Self { title, cursors } = self;
        let Some(cursor) = cursors.first_mut().filter(|cursor| cursor.track != video) else {
            return;
        };
        let (Some(from), Some(to)) = (title.tracks.get(cursor.track), title.tracks.get(video))
        else {
            return;
        };
        // After the last segment, there is nothing to switch.
        let Some(segment) = from.timing(cursor.next) else { return };
        // If the title is aligned, segments with the same number have the same time.
        if !title.aligned {
            cursor.next = to.segment_at(title.presentation_time(from, segment.start));
        }
        cursor.track = video;
    }

    /// The video, as an index into the title's tracks.
    pub(super) fn video(&self) -> Option<usize> {
        let video = self.cursors.first()?.track;
        (kind(&self.title, video) == Some(Kind::Video)).then_some(video)
    }

    /// The video's name.
    pub(super) fn rendition(&self) -> Option<&str> {
        self.track(Kind::Video).map(|track| &*track.name)
    }

    fn track(&self, kind: Kind) -> Option<&Track> {
        let tracks = self.cursors.iter().filter_map(|cursor| self.title.tracks.get(cursor.track));
        tracks.into_iter().find(|track| track.media.kind() == kind)
    }

    /// The header for the next segments.
    pub(super) fn header(&self) -> Result<Bytes, media::Error> {
        self.title.header(&self.cursors.iter().map(|cursor| cursor.track).collect::<Vec<_>>())
    }

    /// The first event for a viewer.
    pub(super) fn hello(&self) -> Hello {
        let followed = self.cursors.first().and_then(|cursor| self.title.tracks.get(cursor.track));
        Hello {
            renditions: renditions(&self.title).map(|(_, track)| rendition(track)).collect(),
            rendition: self.rendition().map(str::to_owned),
            audio: self.track(Kind::Audio).map(|track| Audio {
                name: track.name.clone(),
                bitrate: track.bandwidth.average,
                codecs: codecs(track),
            }),
            timescale: followed.map_or(0, |track| track.media.timescale),
            behind: None,
            duration: Some(self.title.duration.as_secs_f64()),
        }
    }

    /// Duration of the longest segment.
    pub(super) fn longest(&self) -> Duration {
        let tracks = self.cursors.iter().filter_map(|cursor| self.title.tracks.get(cursor.track));
        let longest = |track: &Track| {
            let longest = track.segments().map(|segment| segment.duration).max().unwrap_or(0);
            let seconds = longest as f64 / f64::from(track.media.timescale.max(1));
            Duration::try_from_secs_f64(seconds).unwrap_or_default()
        };
        tracks.map(longest).max().unwrap_or_default()
    }
}

/// Whether a title has a video with this name. The name is the track's, or the file's without its
/// extension.
pub(super) fn has_rendition(title: &Title, name: &str) -> bool {
    renditions(title).any(|(_, track)| is_called(track, name))
}

fn is_called(track: &Track, name: &str) -> bool {
    let file = || Path::new(&track.source).file_stem().and_then(|stem| stem.to_str());
    track.name == name || file() == Some(name)
}

/// Videos among which a viewer may switch, by falling bit rate.
pub(super) fn renditions(title: &Title) -> impl Iterator<Item = (usize, &Track)> {
    let tracks = title.tracks.iter().enumerate();
    tracks.filter(|(_, track)| track.media.kind() == Kind::Video && !track.alternate)
}

/// The best video for these wishes, as an index into the title's tracks.
fn best(title: &Title, choice: &Choice) -> Option<usize> {
    let rate = |track: &Track| track.bandwidth.average;
    let named =
        |track: &Track| choice.rendition.as_ref().is_some_and(|name| is_called(track, name));
    let fits = |track: &Track| choice.max.is_none_or(|max| rate(track) <= max);
    let all = || renditions(title);
    let best = all()
        .find(|(_, track)| named(track))
        .or_else(|| all().find(|(_, track)| fits(track)))
        .or_else(|| all().min_by_key(|(_, track)| rate(track)));
    best.map(|(at, _)| at)
}

fn kind(title: &Title, at: usize) -> Option<Kind> {
    title.tracks.get(at).map(|track| track.media.kind())
}

fn rendition(track: &Track) -> Rendition {
    Rendition {
        name: track.name.clone(),
        bitrate: track.bandwidth.average,
        resolution: track.resolution().map(|(width, height)| format!("{width}x{height}")),
        codecs: codecs(track),
    }
}

fn codecs(track: &Track) -> String {
    track.media.codec.rfc6381().into_owned()
}
