//! Which rendition a viewer is sent: decided from what the server sees of its connection.
//!
//! Pure: time and everything that was measured are arguments. Three rules decide, of which
//! [`Evidence`] is the one that is used; the others are what it is compared with in the simulation.
//!
//! | rule | down | up |
//! |---|---|---|
//! | [`ThreeState`] (Web-native live streaming, 2014) | the queue grows | the queue is empty |
//! | [`Throughput`] | what was acknowledged is less than the rendition | it is more than the next |
//! | [`Evidence`] | what waits is more than the viewer's buffer bears | bursts have shown that the link carries the next, and the last try was not just a failure |

mod evidence;
#[cfg(test)]
mod simulation;
mod three_state;
mod throughput;

pub use evidence::Evidence;
pub use three_state::ThreeState;
pub use throughput::Throughput;

/// What the server sees of one connection, at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Microseconds of any clock.
    pub now: u64,
    /// Bytes of the stream that exist and that the kernel has not taken.
    pub queued: u64,
    /// What waits is of the past, which is sent as fast as it is taken: no sign of slowness.
    pub catching_up: bool,
    /// Bytes that the kernel has taken and the viewer has not acknowledged (`SIOCOUTQ`).
    pub unacknowledged: u64,
    /// Bytes that were acknowledged since the connection began (`tcpi_bytes_acked`).
    pub acknowledged: u64,
    /// Microseconds in which something was to be sent since then (`tcpi_busy_time`).
    pub busy: u64,
    /// Those of them in which the viewer's window was full (`tcpi_rwnd_limited`).
    pub viewer_limited: u64,
    /// Writes since then: each begins with an empty pipe, or adds to what is in it.
    pub writes: u64,
    /// Round-trip time, in microseconds: smoothed, and the least there was.
    pub rtt: u64,
    /// The least it has been.
    pub min_rtt: u64,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Stay,
    /// Go on with this lower rung at its next keyframe.
    Down {
        /// The rung.
        to: usize,
        /// What waits is dropped, and nothing of the rendition is sent until then: it would not be
        /// through in time.
        drop: bool,
    },
    /// Go on with this higher rung at its next keyframe.
    Up(usize),
    /// Drop what waits and go on at the newest keyframe.
    SkipToLive,
}

/// Decides for one viewer.
pub trait Rule {
    /// To be asked a few times a second, and when something cannot be sent. `ladder` has the bits per
    /// second of the renditions the viewer may be sent, audio included, from the least to the most;
    /// `rung` is the one it is sent.
    fn decide(&mut self, seen: &Seen, ladder: &[u64], rung: usize) -> Decision;

    /// Whether what waits of a rung that is being left is still worth sending, to be asked when there
    /// is room for the next part of it.
    fn is_worth_sending(&self, seen: &Seen, bits: u64) -> bool {
        let _ = (seen, bits);
        false
    }

    /// To be told when what was decided has been done: a keyframe came.
    fn switched(&mut self, now: u64);
}

/// Bits per second with which a viewer of whom nothing is known begins, where the ladder has it.
const BEGIN: u64 = 1_500_000;

/// The rung with which a viewer of whom nothing is known begins.
pub fn start(ladder: &[u64]) -> usize {
    fitting(ladder, BEGIN)
}

/// The highest rung of no more than so many bits per second, or the lowest.
fn fitting(ladder: &[u64], rate: u64) -> usize {
    ladder.iter().rposition(|&bits| bits <= rate).unwrap_or(0)
}
