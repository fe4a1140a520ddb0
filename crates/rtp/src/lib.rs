//! RTP packets to samples and back. Sans-IO: time is an argument.
//!
//! ```text
//! packets ─▶ reorder ─▶ depacketizer (of h264, …) ─▶ access units  publish, simulated viewers
//! access units ─▶ packetize (of h264, …) ─▶ payloads ─▶ srtp       play
//! reports ─▶ clock                                                 both tracks on one timeline
//! feedback ─▶ bandwidth ─▶ what the link carries                   play
//! ```
//!
//! An Opus packet is the payload of one RTP packet (RFC 7587 4.2), so it needs no code here.
//! `srtp` encrypts what viewers get, and decrypts their RTCP, which `rtcp` takes apart. `header` reads the part of a
//! packet that SRTP leaves in the clear. All else that WebRTC needs of RTP is str0m's: what a publisher sends, and the
//! parts of RTCP packets.

pub mod av1;
pub mod bandwidth;
pub mod clock;
mod depacketizer;
pub mod feedback;
pub mod h264;
pub mod h265;
pub mod header;
mod nal;
pub mod reorder;
pub mod rtcp;
pub mod srtp;

pub use depacketizer::{AccessUnit, Depacketizer, Output};

/// Clock rate of video, in Hz: RFC 6184 8.2.1, RFC 7798 4.1, and section 4.1 of the format of AV1.
pub const VIDEO_RATE: u32 = 90_000;

/// Clock rate of Opus, in Hz: RFC 7587 4.1.
pub const AUDIO_RATE: u32 = 48_000;
