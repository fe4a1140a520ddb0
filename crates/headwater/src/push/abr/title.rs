//! Chooses the rendition of a title for a viewer, if the server chooses. The choice depends on what
//! the kernel reports of the connection, and takes effect at segment boundaries.
//!
//! While a segment is being sent, there is always data to send. So the rate of acknowledged bytes
//! is the link's capacity, and the viewer gets the best rendition that leaves some of it spare.
//! Between segments that are not yet due, nothing waits. Then the rule for live viewers decides
//! when to try a better rendition.

use std::time::Duration;

use http::net::Told;
use live::cursor::Choice;
use media::Kind;
use protocol::push::abr::{self, Decision, Evidence, Rule, Seen};
use tokio::time::Instant;
use vod::Title;

use crate::push::title_cursor;

/// Time between two looks at a viewer.
const LOOKS: Duration = Duration::from_millis(100);

/// The same for a viewer without data that is due.
const IDLE_LOOKS: Duration = Duration::from_millis(500);

/// The renditions that a viewer may get, by rising bit rate, and the one it gets.
pub(in crate::push) struct TitleAbr {
    /// Indexes into the title's tracks.
    tracks: Box<[usize]>,
    /// Bits per second of each, with audio.
    bits: Box<[u64]>,
    at: usize,
    rule: Evidence,
    began: Instant,
    looked: Option<Instant>,
    /// Number of segments begun when nothing else waited.
    writes: u64,
    is_idle: bool,
}

impl TitleAbr {
    /// Makes the choice for a viewer with these wishes that gets the track `now`. `None` if there
    /// is nothing to choose from, or if the segments of different renditions do not begin together.
    pub(in crate::push) fn new(title: &Title, choice: &Choice, now: Option<usize>) -> Option<Self> {
        let is_pinned =
            choice.rendition.as_ref().is_some_and(|name| title_cursor::has_rendition(title, name));
        if is_pinned || !title.aligned {
            return None;
        }
        let kind = |at: &usize| title.tracks.get(*at).map(|track| track.media.kind());
        let audio = title.chosen().into_iter().find(|at| kind(at) == Some(Kind::Audio));
        let rate = |at: usize| title.tracks.get(at).map_or(0, |track| track.bandwidth.average);
        let mut tracks: Vec<usize> = title_cursor::renditions(title).map(|(at, _)| at).collect();
        tracks.sort_by_key(|at| rate(*at));
        let least = tracks.first().copied();
        let max = choice.max.unwrap_or(u64::MAX);
        tracks.retain(|at| Some(*at) == least || rate(*at) <= max);
        if tracks.len() < 2 {
            return None;
        }
        let audio = audio.map_or(0, rate);
        let bits: Box<[u64]> = tracks.iter().map(|at| rate(*at) + audio).collect();
        let at = match now {
            None => abr::start(&bits),
            Some(now) => tracks.iter().rposition(|at| rate(*at) <= rate(now)).unwrap_or(0),
        };
        Some(Self {
            tracks: tracks.into(),
            bits,
            at,
            rule: Evidence::default(),
            began: Instant::now(),
            looked: None,
            writes: 0,
            is_idle: false,
        })
    }

    /// The track to send.
    pub(in crate::push) fn track(&self) -> Option<usize> {
        self.tracks.get(self.at).copied()
    }

    /// Whether nothing was due at the last look.
    pub(in crate::push) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// Call this when a segment begins and nothing else waited.
    pub(in crate::push) fn begins(&mut self) {
        self.writes += 1;
    }

    /// When to look again, at the latest.
    pub(in crate::push) fn next(&self) -> Instant {
        let interval = if self.is_idle { IDLE_LOOKS } else { LOOKS };
        self.looked.map_or(self.began, |at| at + interval)
    }

    /// Looks at the connection, if it is time to. `told` asks the kernel. `queued` are the bytes of the
    /// current segment that the kernel has not taken. The result applies from the next segment on.
    pub(in crate::push) fn look(&mut self, told: impl FnOnce() -> Option<Told>, queued: u64) {
        let is_idle = queued == 0;
        let turns = std::mem::replace(&mut self.is_idle, is_idle) != is_idle;
        let now = Instant::now();
        if !turns && self.looked.is_some_and(|at| now < at + LOOKS) {
            return;
        }
        self.looked = Some(now);
        let Some(told) = told() else { return };
        let seen = Seen {
            now: self.micros(),
            queued,
            catching_up: !is_idle,
            unacknowledged: told.unacknowledged,
            acknowledged: told.acknowledged,
            busy: told.busy,
            viewer_limited: told.viewer_limited,
            writes: self.writes,
            rtt: told.rtt,
            min_rtt: told.min_rtt,
        };
        let to = match self.rule.decide(&seen, &self.bits, self.at) {
            Decision::Up(to) | Decision::Down { to, .. } if to != self.at => to,
            // A title has no live edge to skip to.
            Decision::Up(_) | Decision::Down { .. } | Decision::SkipToLive | Decision::Stay => {
                return;
            }
        };
        self.at = to.min(self.tracks.len().saturating_sub(1));
        self.rule.switched(self.micros());
    }

    fn micros(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
