//! Adaptive bitrate: the rules that choose a viewer's rendition from the server's view of the
//! connection.
//!
//! A rule does no I/O: time and all measurements are arguments. There are three rules. The server
//! uses [`Evidence`], unless `push.rule` says otherwise; the simulation compares it with the others.
//! The renditions of a viewer form a *ladder*.
//!
//! | rule | goes down when | goes up when |
//! |---|---|---|
//! | [`ThreeState`] (Web-native live streaming, 2014) | the queue grows | the queue is empty |
//! | [`Throughput`] | the acknowledged rate is below the rendition's | it is above the next rendition's |
//! | [`Evidence`] | more bytes wait than the viewer's buffer can cover | bursts have shown that the link carries the next rendition, and it did not fail recently |

mod any;
mod evidence;
#[cfg(test)]
mod simulation;
mod three_state;
mod throughput;

pub use any::AnyRule;
pub use evidence::Evidence;
pub use three_state::ThreeState;
pub use throughput::Throughput;

/// The server's view of one connection at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Time in microseconds of any clock.
    pub now: u64,
    /// Bytes of the stream that exist but that the kernel has not taken.
    pub queued: u64,
    /// Whether the queued bytes are of the past. They are sent as fast as the viewer takes them, so
    /// a queue is no sign of slowness.
    pub catching_up: bool,
    /// Bytes that the kernel has taken but the viewer has not acknowledged (`SIOCOUTQ`).
    pub unacknowledged: u64,
    /// Bytes acknowledged since the connection began (`tcpi_bytes_acked`).
    pub acknowledged: u64,
    /// Microseconds since then in which there were bytes to send (`tcpi_busy_time`).
    pub busy: u64,
    /// Microseconds of these in which the viewer's receive window was full (`tcpi_rwnd_limited`).
    pub viewer_limited: u64,
    /// Writes since then. A write either begins with nothing on its way, or adds to the bytes on
    /// their way.
    pub writes: u64,
    /// Smoothed round-trip time in microseconds.
    pub rtt: u64,
    /// Shortest round-trip time so far, in microseconds.
    pub min_rtt: u64,
}

/// Decision of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Change nothing.
    Stay,
    /// Switch to this lower rendition at its next keyframe.
    Down {
        /// The rendition.
        to: usize,
        /// Whether to drop the waiting bytes and to send nothing of the current rendition until
        /// then, because it would not arrive in time.
        drop: bool,
    },
    /// Switch to this higher rendition at its next keyframe.
    Up(usize),
    /// Drop the waiting bytes and continue at the newest keyframe.
    SkipToLive,
}

/// A rule that decides for one viewer.
pub trait Rule {
    /// Decides. To be called a few times a second, and when bytes cannot be sent. `ladder` has the
    /// bitrates of the viewer's allowed renditions with audio, from the lowest to the highest;
    /// `rendition` is the index of the current one.
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rendition: usize) -> Decision;

    /// Whether the waiting bytes of a rendition that is being left are still worth sending. To be
    /// called when there is room for the next part of them.
    fn is_worth_sending(&self, seen: &Seen, bits: u64) -> bool {
        let _ = (seen, bits);
        false
    }

    /// Tells the rule that its decision was carried out, because a keyframe came.
    fn switched(&mut self, now: u64);
}

/// Bitrate in bits per second at which a new viewer begins, if the ladder has it.
const BEGIN: u64 = 1_500_000;

/// The rendition at which a new viewer begins, of whose link nothing is known.
pub fn start(ladder: &[u64]) -> usize {
    fitting(ladder, BEGIN)
}

/// The highest rendition of at most `rate` bits per second, or the lowest.
fn fitting(ladder: &[u64], rate: u64) -> usize {
    ladder.iter().rposition(|&bits| bits <= rate).unwrap_or(0)
}
