//! A run as it was asked for.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use viewer::tls::Trust;

use super::slow::Manner;
use super::target::{Rule, Target};
use super::url::Scheme;

/// What decides when a request is begun.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// A constant number a second, whatever the server does.
    Open {
        /// Requests a second, more than 0.
        rate: f64,
    },
    /// Each connection asks again when it has its answer.
    Closed,
}

/// A run as it was asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What is asked for, in turn; at least one.
    pub targets: Vec<Target>,
    /// Which ranges of those whose length is known.
    pub rule: Option<Rule>,
    /// Header fields of every request.
    pub headers: Vec<(String, String)>,
    /// When.
    pub pace: Pace,
    /// The most connections at a time, of all event loops together; in a closed loop also how many.
    pub connections: u64,
    /// Whether the user set that number.
    pub connections_given: bool,
    /// The most requests that a connection has without an answer; at least 1.
    pub pipeline: usize,
    /// Whether connections are used again.
    pub keep_alive: bool,
    /// How slow clients are, and when they rest.
    pub manner: Manner,
    /// After which nothing is begun.
    pub duration: Option<Duration>,
    /// After which nothing is begun.
    pub requests: Option<u64>,
    /// How long an answer may take, from its request to its last byte.
    pub timeout: Duration,
    /// Redirections followed for one request; 0: they are answers like others.
    pub redirects: u32,
    /// A file that bodies must be, or be ranges of.
    pub check: Option<PathBuf>,
    /// Event loops of all processes, each of which has as many; at least 1.
    pub threads: usize,
    /// Processes; 0: as few as will do, which [`super::prepare`] finds out.
    pub processes: u32,
    /// Whether event loops never sleep.
    pub busy_poll: bool,
    /// HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    /// Whose certificates are good.
    pub trust: Trust,
}

impl Plan {
    /// Whether it needs hyper.
    pub fn is_general(&self) -> bool {
        self.http2 || self.targets.iter().any(|target| target.url.origin.is_secure())
    }

    /// Whether what it speaks is no HTTP (`limit://`).
    pub fn is_bare(&self) -> bool {
        self.targets.iter().any(|target| target.url.origin.scheme == Scheme::Limit)
    }

    /// How long the schedule is, if it has an end.
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
