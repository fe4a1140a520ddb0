//! A player's clock: what a person in front of the player would have seen. It is computed from
//! which media arrived when.
//!
//! The player starts once the threshold of [`Playback::new`] is buffered of every expected track.
//! Then its playhead advances with the clock. The player stalls where the playhead reaches the end
//! of what has arrived of any track. It goes on once the threshold is buffered again. Media that
//! are missing in between take as long as they would have lasted (a frame that freezes), and are
//! counted.

mod latency;

use std::collections::VecDeque;

pub use latency::{CaptureClock, Gauge, Latencies, Stamps};

use crate::Micros;

/// A media timeline that steps back by more than this, or forward by so much more than the player has waited for media, is
/// a new timeline, unless the other track is there. It is played where the old one ended. A viewer who was cut off from a
/// live stream for longer misses media of the same timeline.
const JUMP: Micros = 10_000_000;

/// A shorter gap is rounding, not missing media. No frame is likely to be this short.
const HOLE: Micros = 8_000;

/// How many holes of a track are remembered. One track is seldom further ahead of the other than these.
const HOLES: usize = 8;

/// Kind of a track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    /// Video.
    Video = 0,
    /// Audio.
    Audio = 1,
}

/// What has arrived of a track, on the playback timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where the first media began.
    pub from: Micros,
    /// Where the last media end.
    pub to: Micros,
    /// Media between the two, without the holes.
    pub received: Micros,
}

/// Where media of a track were missing between others.
#[derive(Debug, Clone, Default)]
struct Holes {
    count: u32,
    missing: Micros,
    longest: Micros,
    /// The newest time without a pause in which video or audio was missing.
    newest: (Micros, Micros),
    /// The last ones of each track, the newest last.
    last: [VecDeque<(Micros, Micros)>; 2],
}

impl Holes {
    /// Counts a hole of a track. Where the other track has one as well, a viewer misses the time only once.
    fn add(&mut self, track: usize, (from, to): (Micros, Micros)) {
        let others = self.last[1 - track].iter();
        let shared: Micros =
            others.map(|&(begin, end)| (end.min(to) - begin.max(from)).max(0)).sum();
        if shared == 0 {
            self.count = self.count.saturating_add(1);
        }
        self.missing = self.missing.saturating_add(to - from - shared);
        self.newest = match self.newest {
            (begin, end) if from < end && begin < to => (begin.min(from), end.max(to)),
            _ => (from, to),
        };
        self.longest = self.longest.max(self.newest.1.saturating_sub(self.newest.0));
        let own = &mut self.last[track];
        if own.len() >= HOLES {
            own.pop_front();
        }
        own.push_back((from, to));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing has been played.
    Waiting,
    /// The playhead is this far behind the clock.
    Playing(Micros),
    Stalled {
        since: Micros,
        position: Micros,
    },
    /// Everything has been played.
    Finished,
}

/// The clock. Every `now` is a time of the run's clock. A `now` that lies before an earlier one is
/// not refused but used as it is, so the caller keeps such steps small.
#[derive(Debug, Clone)]
pub struct Playback {
    threshold: Micros,
    expected: [bool; 2],
    spans: [Option<Span>; 2],
    /// Added to media times to place them on the playback timeline.
    shift: Micros,
    state: State,
    started: Option<Micros>,
    stalls: u32,
    stalled: Micros,
    /// Most viewers have none, and need no room for any.
    holes: Option<Box<Holes>>,
    /// Whether the server has said that nothing more comes.
    complete: bool,
    latencies: Latencies,
    /// End of video minus end of audio.
    skew: Gauge,
}

impl Playback {
    /// Makes a player that starts, and goes on after a stall, once `threshold` microseconds are
    /// buffered.
    pub fn new(threshold: Micros) -> Self {
        Self {
            threshold,
            expected: [false; 2],
            spans: [None; 2],
            shift: 0,
            state: State::Waiting,
            started: None,
            stalls: 0,
            stalled: 0,
            holes: None,
            complete: false,
            latencies: Latencies::default(),
            skew: Gauge::default(),
        }
    }

    /// Changes the threshold, for a server that has less media ready.
    pub fn set_threshold(&mut self, threshold: Micros) {
        self.threshold = threshold;
    }

    /// How much is buffered before playing starts.
    pub fn threshold(&self) -> Micros {
        self.threshold
    }

    /// Announces a track. Playing waits for it.
    pub fn expect(&mut self, track: Track) {
        self.expected[track as usize] = true;
    }

    /// Records the capture time `unix` of media time `media`, in microseconds since 1970. Does
    /// nothing if a more accurate clock has already given one for this timeline.
    pub fn set_captured(&mut self, media: Micros, unix: Micros, clock: CaptureClock) {
        self.latencies.set_captured(media.saturating_add(self.shift), unix, clock);
    }

    /// Takes the stamps of the media that come next, which begin at media time `from`.
    pub fn set_stamps(&mut self, from: Micros, stamps: Stamps) {
        self.latencies.set_stamps(from.saturating_add(self.shift), stamps);
    }

    /// Takes media of a track that arrived at `now` and last from media time `from` to `to`. `unix`
    /// is `now` in microseconds since 1970.
    pub fn media(&mut self, now: Micros, unix: Micros, track: Track, from: Micros, to: Micros) {
        self.advance(now);
        let (mut from, mut to) = (from.saturating_add(self.shift), to.saturating_add(self.shift));
        let index = track as usize;
        let other = self.spans[1 - index];
        if let Some(known) = self.spans[index].or(other) {
            let step = from.saturating_sub(known.to);
            let waited = match self.state {
                State::Stalled { since, .. } => (now - since).max(0),
                _ => 0,
            };
            let is_near = |other: Span| (-JUMP..=JUMP).contains(&from.saturating_sub(other.to));
            let is_known = (-JUMP..=JUMP.saturating_add(waited)).contains(&step);
            if !is_known && !other.is_some_and(is_near) {
                // A new timeline: it goes on where the old one ended.
                self.shift = self.shift.saturating_sub(step);
                self.latencies.begin_timeline();
                (from, to) = (known.to, to.saturating_sub(step));
            }
        }
        if let Some(span) = &self.spans[index]
            && from - span.to > HOLE
        {
            self.holes.get_or_insert_default().add(index, (span.to, from));
        }
        match &mut self.spans[index] {
            Some(span) => {
                span.received = span.received.saturating_add((to - from.max(span.to)).max(0));
                span.to = span.to.max(to);
            }
            none => *none = Some(Span { from, to, received: (to - from).max(0) }),
        }
        if let [Some(video), Some(audio)] = self.spans {
            self.skew.record(video.to - audio.to);
        }
        self.latencies.measure((now, unix), to, self.position(now));
        match self.state {
            State::Waiting => self.start(now),
            State::Stalled { since, position }
                if self.end().is_some_and(|end| end - position >= self.threshold) =>
            {
                self.stalled += now - since;
                self.state = State::Playing(now - position);
            }
            _ => {}
        }
    }

    /// Moves what has come of a track by this much: where it belongs beside the other track is now
    /// known better. Nothing is missing or received by that.
    pub fn move_track(&mut self, track: Track, by: Micros) {
        if let Some(span) = &mut self.spans[track as usize] {
            span.from = span.from.saturating_add(by);
            span.to = span.to.saturating_add(by);
        }
        for (from, to) in self.holes.iter_mut().flat_map(|holes| &mut holes.last[track as usize]) {
            *from = from.saturating_add(by);
            *to = to.saturating_add(by);
        }
    }

    fn start(&mut self, now: Micros) {
        let missing = |index: usize| self.expected[index] && self.spans[index].is_none();
        if missing(0) || missing(1) {
            return;
        }
        let from = self.spans.iter().flatten().map(|span| span.from).max();
        if let (Some(from), Some(end)) = (from, self.end())
            && (end - from >= self.threshold || self.complete)
        {
            self.state = State::Playing(now - from);
            self.started = Some(now);
        }
    }

    /// End of the media that can be played: the end of the track that ends first.
    fn end(&self) -> Option<Micros> {
        self.spans.iter().flatten().map(|span| span.to).min()
    }

    /// Position of the playhead on the playback timeline; `None` before the start.
    pub fn position(&self, now: Micros) -> Option<Micros> {
        match self.state {
            State::Waiting => None,
            State::Playing(since) => self.end().map(|end| end.min(now - since)),
            State::Stalled { position, .. } => Some(position),
            State::Finished => self.end(),
        }
    }

    /// How much media is ahead of the playhead.
    pub fn buffered(&self, now: Micros) -> Micros {
        let end = self.end().unwrap_or_default();
        let from = self.spans.iter().flatten().map(|span| span.from).max().unwrap_or(end);
        (end - self.position(now).unwrap_or(from)).max(0)
    }

    /// Moves the playhead on to `now`.
    pub fn advance(&mut self, now: Micros) {
        if let State::Playing(since) = self.state
            && let Some(end) = self.end()
            && now - since > end
        {
            self.state = if self.complete {
                State::Finished
            } else {
                self.stalls += 1;
                State::Stalled { since: since + end, position: end }
            };
        }
    }

    /// Tells the player that nothing more comes. It plays what is buffered to the end, without a
    /// stall.
    pub fn complete(&mut self, now: Micros) {
        self.advance(now);
        self.complete = true;
        match self.state {
            State::Waiting => self.start(now),
            State::Stalled { since, .. } => {
                self.stalled += now - since;
                self.state = State::Finished;
            }
            _ => {}
        }
    }

    /// Ends playing at `now`. A stall that still lasts is counted up to `now`.
    pub fn finish(&mut self, now: Micros) {
        self.advance(now);
        if let State::Stalled { since, .. } = self.state {
            self.stalled += now - since;
            self.state = State::Finished;
        }
    }

    /// Whether the playhead waits for media.
    pub fn is_stalled(&self) -> bool {
        matches!(self.state, State::Stalled { .. })
    }

    /// When playing began.
    pub fn started(&self) -> Option<Micros> {
        self.started
    }

    /// Number and total duration of the stalls.
    pub fn stalls(&self) -> (u32, Micros) {
        (self.stalls, self.stalled)
    }

    /// Number and total duration of the holes between media. Holes of both tracks that overlap are one.
    pub fn holes(&self) -> (u32, Micros) {
        self.holes.as_ref().map_or((0, 0), |holes| (holes.count, holes.missing))
    }

    /// Duration of the longest hole. Holes of both tracks that overlap are one.
    pub fn longest_hole(&self) -> Micros {
        self.holes.as_ref().map_or(0, |holes| holes.longest)
    }

    /// What has arrived of a track.
    pub fn span(&self, track: Track) -> Option<Span> {
        self.spans[track as usize]
    }

    /// Duration of the media received. The track with the least counts, because a player needs
    /// both.
    pub fn received(&self) -> Micros {
        let absent = (0..2).any(|index| self.expected[index] && self.spans[index].is_none());
        let received = self.spans.iter().flatten().map(|span| span.received).min();
        if absent { 0 } else { received.unwrap_or_default() }
    }

    /// How late the media came.
    pub fn latencies(&self) -> &Latencies {
        &self.latencies
    }

    /// End of video minus end of audio.
    pub fn skew(&self) -> &Gauge {
        &self.skew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Micros = 1000;

    /// Takes in frames of 40 ms that arrive at the given times, in milliseconds.
    fn frames(playback: &mut Playback, arrivals: impl IntoIterator<Item = Micros>) {
        for (number, at) in (0..).zip(arrivals) {
            let from = number * 40 * MS;
            playback.media(at * MS, at * MS, Track::Video, from, from + 40 * MS);
        }
    }

    #[test]
    fn starts_at_the_threshold_and_plays_on() {
        let mut playback = Playback::new(100 * MS);
        frames(&mut playback, (0..50).map(|n| 7 + 40 * n));
        // The third frame completes 120 ms.
        assert_eq!(playback.started(), Some(87 * MS));
        assert_eq!(playback.stalls(), (0, 0));
        assert_eq!(playback.received(), 2000 * MS);
        assert_eq!(playback.position(200 * MS), Some(113 * MS));
        assert_eq!(playback.buffered(1967 * MS), 120 * MS);
    }

    #[test]
    fn a_late_frame_stalls_from_when_the_buffer_was_empty() {
        let mut playback = Playback::new(100 * MS);
        // Ten frames on time, nothing for 500 ms, then the rest at once.
        let late = (0..10).map(|n| 40 * n).chain((10..40).map(|_| 900));
        frames(&mut playback, late);
        // Playing starts at 80 with position 0; 400 ms of media last until 480.
        assert_eq!(playback.started(), Some(80 * MS));
        assert_eq!(playback.stalls(), (1, 420 * MS));
        assert!(!playback.is_stalled());
        playback.finish(1000 * MS);
        assert_eq!(playback.position(1000 * MS), Some(500 * MS));
    }

    #[test]
    fn a_stall_that_lasts_is_counted_at_the_end_and_none_where_all_is_there() {
        let mut playback = Playback::new(40 * MS);
        frames(&mut playback, [0, 40]);
        let mut ended = playback.clone();
        playback.finish(1080 * MS);
        assert_eq!(playback.stalls(), (1, 1000 * MS));
        ended.complete(50 * MS);
        ended.finish(1080 * MS);
        assert_eq!(ended.stalls(), (0, 0));
    }

    #[test]
    fn waits_for_every_expected_track_and_plays_to_the_end_of_the_shorter() {
        let mut playback = Playback::new(0);
        playback.expect(Track::Video);
        playback.expect(Track::Audio);
        playback.media(0, 0, Track::Video, 0, 1000 * MS);
        assert_eq!((playback.started(), playback.received()), (None, 0));
        playback.media(300 * MS, 0, Track::Audio, 100 * MS, 600 * MS);
        assert_eq!(playback.started(), Some(300 * MS));
        assert_eq!(playback.received(), 500 * MS);
        assert_eq!(playback.skew().read(), Some((400 * MS, 400 * MS, 400 * MS)));
        playback.advance(900 * MS);
        assert_eq!(playback.stalls().0, 1);
    }

    #[test]
    fn holes_are_passed_over_and_counted_and_jumps_are_new_timelines() {
        let mut playback = Playback::new(0);
        playback.media(0, 0, Track::Video, 0, 100 * MS);
        playback.media(100 * MS, 0, Track::Video, 150 * MS, 200 * MS);
        assert_eq!(playback.holes(), (1, 50 * MS));
        assert_eq!(playback.received(), 150 * MS);
        playback.media(200 * MS, 0, Track::Video, 90_000 * MS, 90_100 * MS);
        playback.media(200 * MS, 0, Track::Audio, 90_000 * MS, 90_100 * MS);
        assert_eq!(playback.holes(), (1, 50 * MS));
        assert_eq!(playback.span(Track::Video).unwrap().to, 300 * MS);
        assert_eq!(playback.span(Track::Audio).unwrap().to, 300 * MS);
        playback.advance(250 * MS);
        assert_eq!(playback.stalls(), (0, 0));
    }

    #[test]
    fn what_a_viewer_missed_for_long_is_a_hole_and_no_new_timeline() {
        let mut playback = Playback::new(0);
        for track in [Track::Video, Track::Audio] {
            playback.media(0, 0, track, 0, 100 * MS);
        }
        // It was cut off for 15 s of a live stream.
        for track in [Track::Video, Track::Audio] {
            playback.media(15_100 * MS, 0, track, 15_000 * MS, 15_100 * MS);
        }
        assert_eq!((playback.holes(), playback.longest_hole()), ((1, 14_900 * MS), 14_900 * MS));
        assert_eq!(playback.span(Track::Audio).unwrap().to, 15_100 * MS);
        // Within that time nobody could have sent a minute.
        for track in [Track::Video, Track::Audio] {
            playback.media(30_000 * MS, 0, track, 60_000 * MS, 60_100 * MS);
        }
        assert_eq!(playback.holes().0, 1);
        assert_eq!(playback.span(Track::Video).unwrap().to, 15_200 * MS);
    }

    #[test]
    fn what_both_tracks_miss_is_one_hole() {
        let mut playback = Playback::new(0);
        for (track, from, to) in [
            (Track::Video, 0, 100),
            (Track::Audio, 0, 80),
            (Track::Video, 300, 400),
            (Track::Audio, 310, 380),
        ] {
            playback.media(0, 0, track, from * MS, to * MS);
        }
        // Video misses 100 to 300, audio 80 to 310.
        assert_eq!((playback.holes(), playback.longest_hole()), ((1, 230 * MS), 230 * MS));
        playback.media(0, 0, Track::Audio, 420 * MS, 500 * MS);
        playback.media(0, 0, Track::Video, 500 * MS, 600 * MS);
        // Audio misses 380 to 420, video 400 to 500.
        assert_eq!((playback.holes(), playback.longest_hole()), ((2, 350 * MS), 230 * MS));
        for (track, from, to) in
            [(Track::Audio, 600, 700), (Track::Audio, 800, 900), (Track::Video, 1000, 1100)]
        {
            playback.media(0, 0, track, from * MS, to * MS);
        }
        // Audio misses 500 to 600 and 700 to 800, video 600 to 1000.
        assert_eq!((playback.holes(), playback.longest_hole()), ((4, 850 * MS), 400 * MS));
    }

    #[test]
    fn a_track_that_moves_is_neither_longer_nor_has_a_hole() {
        let mut playback = Playback::new(100 * MS);
        for (track, from) in [(Track::Video, 0), (Track::Audio, 50)] {
            playback.media(0, 0, track, from * MS, (from + 200) * MS);
        }
        playback.move_track(Track::Audio, -80 * MS);
        playback.media(150 * MS, 0, Track::Audio, 170 * MS, 190 * MS);
        assert_eq!((playback.holes().0, playback.stalls().0), (0, 0));
        let span = playback.span(Track::Audio).unwrap();
        assert_eq!((span.from, span.to, span.received), (-30 * MS, 190 * MS, 220 * MS));
        // The playhead now meets the end of the moved track, before that of the other.
        playback.advance(195 * MS);
        assert_eq!(playback.stalls().0, 1);
    }
}
