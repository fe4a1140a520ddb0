//! A run as the user asked for it.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use viewer::tls::Trust;

use super::slow::Manner;
use super::target::{Rule, Target};
use super::url::Scheme;

/// What decides when a request starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// A constant rate, whatever the server does.
    Open {
        /// Requests per second, more than 0.
        rate: f64,
    },
    /// Each connection sends its next request when it has its answer.
    Closed,
}

/// A run as the user asked for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The targets, asked for in turn; at least one.
    pub targets: Vec<Target>,
    /// Ranges to ask for, of targets whose length is known.
    pub rule: Option<Rule>,
    /// Header fields of every request.
    pub headers: Vec<(String, String)>,
    /// What decides when requests start.
    pub pace: Pace,
    /// The most connections at a time of all event loops together. A closed loop has exactly this
    /// many.
    pub connections: u64,
    /// Whether the user set that number.
    pub connections_given: bool,
    /// The most requests without an answer on a connection; at least 1.
    pub pipeline: usize,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// How slow clients are, and how long they rest.
    pub manner: Manner,
    /// Time after which no request starts.
    pub duration: Option<Duration>,
    /// Number of requests after which no other starts.
    pub requests: Option<u64>,
    /// How long an answer may take, from its request to its last byte.
    pub timeout: Duration,
    /// How many redirections are followed for one request; 0: they are answers like others.
    pub redirects: u32,
    /// A file that bodies must equal, or be a range of.
    pub check: Option<PathBuf>,
    /// Event loops of all processes together, at least 1. All processes have equally many.
    pub threads: usize,
    /// How many processes; 0 for as few as possible, which [`super::prepare`] finds out.
    pub processes: u32,
    /// Whether event loops never sleep.
    pub busy_poll: bool,
    /// HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    /// Which certificates are trusted.
    pub trust: Trust,
}

impl Plan {
    /// Whether the run needs hyper.
    pub fn is_general(&self) -> bool {
        self.http2 || self.targets.iter().any(|target| target.url.origin.is_secure())
    }

    /// Whether the targets are without HTTP (`limit://`).
    pub fn is_bare(&self) -> bool {
        self.targets.iter().any(|target| target.url.origin.scheme == Scheme::Limit)
    }

    /// Length of the schedule, if it ends.
    pub fn length(&self) -> Option<Duration> {
        let by_count = match (self.pace, self.requests) {
            (Pace::Open { rate }, Some(requests)) => {
                Duration::try_from_secs_f64(requests as f64 / rate).ok()
            }
            _ => None,
        };
        [self.duration, by_count].into_iter().flatten().min()
    }
}
