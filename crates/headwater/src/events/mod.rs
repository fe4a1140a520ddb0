//! What happens on this origin that an operator wants to know at once: streams that begin and end, publishers that are
//! refused, limits that are reached, viewers that are too slow.
//!
//! ```text
//! rtmp, webrtc, push, deliver, sweep ─ tell ─▶ Events (the newest 1,000) ─┬▶ /api/v1/events   server-sent events
//!                                                                         └▶ webhook          one POST each
//! ```
//!
//! A sender of events never waits. A reader that is too slow learns how many events are missing.

pub(crate) mod streams;
pub(crate) mod webhook;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::net::LogLimit;
use live::{PublishError, UnixMicros};
use serde::Serialize;

use crate::clock::wall_clock;
use crate::followed::Followed;
use crate::path::shown;

/// How many events are kept for those who read them.
const KEPT: usize = 1000;

/// Events of a kind that peers cause: so many in so much time. The next one tells how many were left out.
const CAUSED: (u32, Duration) = (20, Duration::from_secs(10));

/// Longest text in an event that a peer chose, in bytes.
const LONGEST: usize = 256;

/// What happened. The API and the webhook carry it under these names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Somebody publishes a stream, or publishes it again.
    StreamStarted {
        /// `live/NAME`.
        stream: String,
    },
    /// The publisher of a stream was lost. It may come back.
    StreamLost {
        /// `live/NAME`.
        stream: String,
    },
    /// A stream is over.
    StreamEnded {
        /// `live/NAME`.
        stream: String,
    },
    /// Somebody may not publish.
    PublisherRefused {
        /// What the publisher named: usually `live/NAME`.
        stream: String,
        /// `rtmp` or `whip`.
        protocol: &'static str,
        /// Its address and port. Only administrators get it.
        #[serde(skip_serializing_if = "Option::is_none")]
        peer: Option<SocketAddr>,
        /// Why.
        reason: String,
    },
    /// Viewers were refused because a limit of the configuration is reached.
    ViewerLimit {
        /// The option that has the limit.
        limit: &'static str,
        /// How many were refused since the event before.
        refused: u64,
    },
    /// A viewer reads too slowly.
    SlowViewer {
        /// `live/NAME` or `vod/PATH`.
        stream: String,
        /// The delivery by its name in the API.
        delivery: &'static str,
        /// Its address and port. Only administrators get it.
        #[serde(skip_serializing_if = "Option::is_none")]
        peer: Option<SocketAddr>,
        /// What happened to the viewer.
        action: SlowAction,
    },
}

/// What happened to a slow viewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SlowAction {
    /// It was moved to the newest keyframe.
    Skipped,
    /// It stayed behind and was disconnected.
    ClosedBehind,
    /// It took nothing at all and was disconnected.
    ClosedStalled,
}

impl Event {
    /// A publisher that was refused. What it named may be long, and anything.
    pub(crate) fn refused(
        stream: &str,
        protocol: &'static str,
        peer: SocketAddr,
        why: &dyn std::fmt::Display,
    ) -> Self {
        let (stream, reason) = (shortened(stream), shortened(&why.to_string()));
        Self::PublisherRefused { stream, protocol, peer: Some(peer), reason }
    }

    /// Its name, as the API has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::StreamStarted { .. } => "stream_started",
            Self::StreamLost { .. } => "stream_lost",
            Self::StreamEnded { .. } => "stream_ended",
            Self::PublisherRefused { .. } => "publisher_refused",
            Self::ViewerLimit { .. } => "viewer_limit",
            Self::SlowViewer { .. } => "slow_viewer",
        }
    }

    /// The same event without addresses.
    fn without_peer(&self) -> Self {
        let mut event = self.clone();
        if let Self::PublisherRefused { peer, .. } | Self::SlowViewer { peer, .. } = &mut event {
            *peer = None;
        }
        event
    }
}

/// Why a publisher is refused: for the log, and for the peer and the event.
///
/// A refused name may contain a mistyped key, so both have only as much of the name as may be shown. The log names
/// the address of the other publisher. The text for the peer does not: only administrators see addresses.
pub(crate) fn refusal(error: PublishError) -> (PublishError, String) {
    let shown = |name: String| shown(&name).to_owned();
    let error = match error {
        PublishError::BadName(name) => PublishError::BadName(shown(name)),
        PublishError::BadRendition(name) => PublishError::BadRendition(shown(name)),
        error => error,
    };
    let told = match &error {
        PublishError::InUse(_) | PublishError::Elsewhere => "already published".to_owned(),
        error => error.to_string(),
    };
    (error, told)
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}

/// An event and when it was.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// Counts from 1.
    pub id: u64,
    /// By the wall clock.
    pub at: UnixMicros,
    /// How many events of this kind were left out before it, because there were too many.
    pub left_out: u64,
    /// What happened.
    pub event: Event,
}

impl Record {
    /// The event as one line of JSON: its number, its time and what happened.
    pub fn json(&self, with_peer: bool) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            id: u64,
            at: String,
            #[serde(skip_serializing_if = "is_zero")]
            left_out: u64,
            #[serde(flatten)]
            event: &'a Event,
        }
        let at = protocol::utc::Utc(self.at.0 / 1000).to_string();
        let without = (!with_peer).then(|| self.event.without_peer());
        let (id, left_out) = (self.id, self.left_out);
        let line = Line { id, at, left_out, event: without.as_ref().unwrap_or(&self.event) };
        serde_json::to_string(&line).expect("texts, numbers and addresses can be written")
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The newest events.
#[derive(Debug)]
pub struct Events {
    recent: Arc<Followed<Record>>,
    /// Limits of refusals, of reached limits, and of slow viewers.
    limits: [Mutex<LogLimit>; 3],
}

impl Default for Events {
    fn default() -> Self {
        let limits = std::array::from_fn(|_| Mutex::new(LogLimit::new(CAUSED.0, CAUSED.1)));
        Self { recent: Arc::new(Followed::new(KEPT)), limits }
    }
}

impl Events {
    /// Tells those who read that something happened. Takes no time. Of what peers cause, only some is told: they must
    /// not drive out the rest.
    pub fn tell(&self, event: Event) {
        let limit = match event {
            Event::PublisherRefused { .. } => Some(&self.limits[0]),
            Event::ViewerLimit { .. } => Some(&self.limits[1]),
            Event::SlowViewer { .. } => Some(&self.limits[2]),
            Event::StreamStarted { .. } | Event::StreamLost { .. } | Event::StreamEnded { .. } => {
                None
            }
        };
        let left_out = match limit {
            None => 0,
            Some(limit) => {
                let mut limit = limit.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(left_out) = limit.take(Instant::now()) else { return };
                left_out
            }
        };
        self.recent.add(|id| Record { id, at: wall_clock(), left_out, event });
    }

    /// The newest events, to be read.
    pub fn recent(&self) -> &Arc<Followed<Record>> {
        &self.recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(name: u64) -> Event {
        Event::StreamStarted { stream: format!("live/{name}") }
    }

    #[test]
    fn what_peers_cause_drives_nothing_out() {
        let events = Events::default();
        events.tell(started(1));
        let peer = "192.0.2.1:5".parse().unwrap();
        for _ in 0..KEPT * 2 {
            events.tell(Event::refused("live/x", "whip", peer, &"no"));
        }
        let kept = events.recent.kept();
        assert_eq!(kept[0].event.name(), "stream_started");
        assert_eq!(kept.len(), 1 + CAUSED.0 as usize);
        assert!(kept.iter().all(|record| record.left_out == 0));
    }

    #[test]
    fn an_event_is_a_line_that_has_addresses_only_for_administrators() {
        let peer = "192.0.2.1:5".parse().unwrap();
        let long = "é".repeat(LONGEST);
        let event = Event::refused(&long, "rtmp", peer, &"a \"line\"\nor two");
        let record = Record { id: 7, at: UnixMicros(1_000_000), left_out: 0, event };
        let name = "é".repeat(LONGEST / 2);
        let start = format!(
            r#"{{"id":7,"at":"1970-01-01T00:00:01.000Z","event":"publisher_refused","stream":"{name}","protocol":"rtmp","#
        );
        let end = r#""reason":"a \"line\"\nor two"}"#;
        assert_eq!(record.json(true), format!(r#"{start}"peer":"192.0.2.1:5",{end}"#));
        assert_eq!(record.json(false), format!("{start}{end}"));
    }
}
