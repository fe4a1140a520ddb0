//! Viewers whose players tell of themselves: counted once each, whatever addresses and connections they use, and also
//! where their media come from a cache. What they tell is kept as it was told last.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::UnixMicros;
use crate::delivery::Delivery;

/// The most sessions of one stream.
const MOST: usize = 100_000;

/// How long a session counts after a report, if the player reports every few seconds also when it asks for nothing.
pub const REGULAR: Duration = Duration::from_secs(30);

/// A player that stalls reports that once for each track.
const STALL: Duration = Duration::from_secs(1);

/// Permission to keep one more session. Dropping it gives it back.
pub type Permit = Box<dyn Any + Send + Sync>;

/// Who reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reporter {
    /// Identifies the session of playback.
    pub session: u64,
    /// Identifies the player as one that told nothing is identified. Where the player has a session, requests in which it
    /// tells nothing do not count it again.
    pub player: u64,
}

/// What a player tells of itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// How it gets the stream, if it said that.
    pub delivery: Option<Delivery>,
    /// Media ahead of the playhead.
    pub buffer: Option<Duration>,
    /// Throughput that it measured, in bit/s.
    pub throughput: Option<u64>,
    /// Bitrate of what it plays, in bit/s.
    pub bitrate: Option<u64>,
    /// Time from the wish to play to the first frame.
    pub startup: Option<Duration>,
    /// Whether it ran out of media since its report before.
    pub has_stalled: bool,
    /// Whether it needs media urgently: it starts, seeks or has run out of them.
    pub is_urgent: bool,
    /// Whether buffer and bitrate are those of audio alone.
    pub is_audio: bool,
    /// Whether it reports regularly, and not only with requests.
    pub is_regular: bool,
    /// Whether it has ended.
    pub is_over: bool,
}

/// Two places in a sorted list of what the viewers reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread<T> {
    /// Half of the viewers have at least this.
    pub median: T,
    /// One viewer in ten is worse off than this.
    pub bad: T,
}

/// How the viewers are that told of themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quality {
    /// How many they are.
    pub viewers: usize,
    /// Media ahead of the playhead.
    pub buffer: Option<Spread<Duration>>,
    /// Measured throughput in bit/s.
    pub throughput: Option<Spread<u64>>,
    /// Bitrate of what they play, in bit/s.
    pub bitrate: Option<Spread<u64>>,
    /// Time from the wish to play to the first frame.
    pub startup: Option<Spread<Duration>>,
    /// How many need media urgently: they start, seek or have run out of them.
    pub urgent: usize,
    /// How often viewers ran out of media, in all.
    pub stalls: u64,
}

/// The sessions of one stream.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sessions: HashMap<u64, Session>,
    stalls: u64,
}

#[derive(Debug)]
struct Session {
    player: u64,
    began: UnixMicros,
    until: UnixMicros,
    stalled: Option<UnixMicros>,
    /// All that it told, each value as it was told last.
    told: Report,
    _permit: Permit,
}

impl Sessions {
    /// Takes a report. A session counts for `lasts` after its last one. `permit` is called for a new session.
    /// Returns whether the session is kept: if not, the viewer is to be counted as one that told nothing.
    pub fn told(
        &self,
        by: Reporter,
        report: &Report,
        lasts: Duration,
        now: UnixMicros,
        permit: impl FnOnce() -> Option<Permit>,
    ) -> bool {
        let mut inner = self.lock();
        let Inner { sessions, stalls } = &mut *inner;
        if report.is_over {
            return sessions.remove(&by.session).is_some();
        }
        if !sessions.contains_key(&by.session) {
            if sessions.len() >= MOST {
                return false;
            }
            let Some(permit) = permit() else { return false };
            let told = Report::default();
            let session = Session {
                player: by.player,
                began: now,
                until: now,
                stalled: None,
                told,
                _permit: permit,
            };
            sessions.insert(by.session, session);
        }
        let Some(session) = sessions.get_mut(&by.session) else { return false };
        session.player = by.player;
        let has_stalled =
            report.has_stalled && now.since(session.stalled.unwrap_or(session.began)) >= STALL;
        if has_stalled {
            session.stalled = Some(now);
            *stalls += 1;
        }
        session.told.merge(report);
        let lasts = if session.told.is_regular { lasts.max(REGULAR) } else { lasts };
        session.until = session.until.max(now.after(lasts));
        true
    }

    /// Adds the viewers to `counts`, which has a place for each delivery. Returns the players that they use.
    pub fn count(&self, now: UnixMicros, counts: &mut [(Delivery, usize)]) -> HashSet<u64> {
        let inner = self.lock();
        let here = inner.sessions.values().filter(|session| now < session.until);
        here.map(|session| {
            if let Some(delivery) = session.told.delivery {
                counts[delivery as usize].1 += 1;
            }
            session.player
        })
        .collect()
    }

    /// How the viewers are. `None` if nobody has told that.
    pub fn quality(&self, now: UnixMicros) -> Option<Quality> {
        let inner = self.lock();
        let told: Vec<_> = inner
            .sessions
            .values()
            .filter(|session| now < session.until)
            .map(|session| session.told)
            .collect();
        let stalls = inner.stalls;
        drop(inner);
        (!told.is_empty() || stalls > 0).then(|| Quality {
            viewers: told.len(),
            buffer: spread(told.iter().filter_map(|told| told.buffer), Worst::Least),
            throughput: spread(told.iter().filter_map(|told| told.throughput), Worst::Least),
            bitrate: spread(told.iter().filter_map(|told| told.bitrate), Worst::Least),
            startup: spread(told.iter().filter_map(|told| told.startup), Worst::Most),
            urgent: told.iter().filter(|told| told.is_urgent).count(),
            stalls,
        })
    }

    /// Forgets sessions that have ended. Returns whether there are none.
    pub fn sweep(&self, now: UnixMicros) -> bool {
        let mut inner = self.lock();
        inner.sessions.retain(|_, session| now < session.until);
        inner.sessions.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    /// Takes over what a newer report has.
    fn merge(&mut self, newer: &Self) {
        self.delivery = match (self.delivery, newer.delivery) {
            // A low-latency player asks for some playlists as any player does.
            (Some(Delivery::LlHls), Some(Delivery::Hls)) => Some(Delivery::LlHls),
            (before, now) => now.or(before),
        };
        // Players tell of each track. Where there is video, it is what counts.
        let has_video = self.bitrate.is_some() && !self.is_audio;
        if !(newer.is_audio && has_video) {
            self.buffer = newer.buffer.or(self.buffer);
            if newer.bitrate.is_some() {
                (self.bitrate, self.is_audio) = (newer.bitrate, newer.is_audio);
            }
        }
        self.throughput = newer.throughput.or(self.throughput);
        self.startup = newer.startup.or(self.startup);
        self.is_urgent = newer.is_urgent;
        self.is_regular |= newer.is_regular;
    }
}

#[derive(Clone, Copy)]
enum Worst {
    Least,
    Most,
}

fn spread<T: Ord + Copy>(values: impl Iterator<Item = T>, worst: Worst) -> Option<Spread<T>> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    if let Worst::Most = worst {
        values.reverse();
    }
    let median = *values.get(values.len() / 2)?;
    Some(Spread { median, bad: *values.get(values.len() / 10)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> UnixMicros {
        UnixMicros(seconds * 1_000_000)
    }

    fn anybody() -> Option<Permit> {
        Some(Box::new(()))
    }

    fn by(session: u64) -> Reporter {
        Reporter { session, player: 7 }
    }

    const LASTS: Duration = Duration::from_secs(10);

    fn via(delivery: Delivery) -> Report {
        Report { delivery: Some(delivery), ..Report::default() }
    }

    fn counts(sessions: &Sessions, now: u64) -> Vec<(Delivery, usize)> {
        let mut counts = Delivery::ALL.map(|delivery| (delivery, 0));
        let players = sessions.count(at(now), &mut counts);
        assert_eq!(
            players.is_empty(),
            sessions.quality(at(now)).is_none_or(|all| all.viewers == 0)
        );
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    #[test]
    fn a_session_counts_once_until_it_ends_or_is_silent() {
        let sessions = Sessions::default();
        let told = |session, report: &Report, now| {
            assert!(sessions.told(by(session), report, LASTS, at(now), anybody));
        };
        told(1, &via(Delivery::Hls), 0);
        told(1, &via(Delivery::LlHls), 1);
        told(1, &via(Delivery::Hls), 2);
        told(2, &via(Delivery::Dash), 2);
        // What has a connection is counted by that, and what does not say how it plays is not.
        told(3, &Report::default(), 2);
        assert_eq!(counts(&sessions, 11), [(Delivery::LlHls, 1), (Delivery::Dash, 1)]);
        assert_eq!(sessions.quality(at(11)).unwrap().viewers, 3);
        assert_eq!(counts(&sessions, 12), []);
        told(2, &Report { is_regular: true, ..Report::default() }, 12);
        told(2, &Report::default(), 13);
        assert_eq!(counts(&sessions, 42), [(Delivery::Dash, 1)]);
        assert!(!sessions.sweep(at(42)));
        told(2, &Report { is_over: true, ..Report::default() }, 42);
        assert!(sessions.sweep(at(42)));
        assert!(!sessions.told(
            by(2),
            &Report { is_over: true, ..via(Delivery::Dash) },
            LASTS,
            at(42),
            anybody
        ));
    }

    #[test]
    fn sessions_need_places_and_give_them_back() {
        let (sessions, places) = (Sessions::default(), std::sync::Arc::new(()));
        let permit = || {
            let permit = std::sync::Arc::clone(&places);
            (std::sync::Arc::strong_count(&places) <= 4).then(|| Box::new(permit) as Permit)
        };
        for session in 0..1000 {
            let is_kept = sessions.told(by(session), &via(Delivery::Hls), LASTS, at(0), permit);
            assert_eq!(is_kept, session < 3, "{session}");
        }
        assert!(sessions.told(by(2), &Report::default(), LASTS, at(1), || unreachable!()));
        sessions.sweep(at(10));
        assert!(sessions.told(by(999), &via(Delivery::Hls), LASTS, at(10), permit));
        assert_eq!(counts(&sessions, 10), [(Delivery::Hls, 2)]);
    }

    #[test]
    fn what_viewers_tell_is_kept_and_summed_up() {
        let sessions = Sessions::default();
        let told = |session, report: &Report, now: u64| {
            assert!(sessions.told(by(session), report, LASTS, UnixMicros(now), anybody));
        };
        assert_eq!(sessions.quality(at(0)), None);
        for session in 1..=10_u64 {
            let (buffer, startup) =
                (Duration::from_secs(session), Duration::from_secs(10 * session));
            let (buffer, startup) = (Some(buffer), Some(startup));
            told(session, &Report { buffer, startup, bitrate: Some(1000), ..Report::default() }, 0);
            // The audio track's values do not replace those of video.
            let (buffer, bitrate) = (Some(Duration::ZERO), Some(1));
            let throughput = Some(session);
            told(
                session,
                &Report { buffer, bitrate, throughput, is_audio: true, ..Report::default() },
                1,
            );
        }
        let stalled = Report { has_stalled: true, is_urgent: true, ..Report::default() };
        // In its first second a session counts none, and then one a second: who begins anew for each gets no more.
        for now in [2, 3, 1_000_001, 1_000_002, 2_100_000, 5_000_000] {
            told(1, &stalled, now);
        }
        let seconds = Duration::from_secs;
        let expected = Quality {
            viewers: 10,
            buffer: Some(Spread { median: seconds(6), bad: seconds(2) }),
            throughput: Some(Spread { median: 6, bad: 2 }),
            bitrate: Some(Spread { median: 1000, bad: 1000 }),
            startup: Some(Spread { median: seconds(50), bad: seconds(90) }),
            urgent: 1,
            stalls: 3,
        };
        assert_eq!(sessions.quality(at(6)), Some(expected));
        // The number of stalls stays when all have left.
        assert_eq!(
            sessions.quality(at(60)).map(|quality| (quality.viewers, quality.stalls)),
            Some((0, 3))
        );
        let audio = Sessions::default();
        let report = Report {
            bitrate: Some(64),
            is_audio: true,
            buffer: Some(seconds(3)),
            ..Report::default()
        };
        assert!(audio.told(by(1), &report, LASTS, at(0), anybody));
        assert_eq!(audio.quality(at(0)).unwrap().buffer.unwrap().median, seconds(3));
    }
}
