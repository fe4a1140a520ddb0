//! RTP packets to samples and back. Sans-IO: time is an argument.
//!
//! ```text
//! packets ─▶ reorder ─▶ h264::Depacketizer ─▶ access units      publish, simulated viewers
//! access units ─▶ h264::packetize ─▶ payloads                   play
//! reports ─▶ clock                                              both tracks on one timeline
//! ```
//!
//! An Opus packet is the payload of one RTP packet (RFC 7587 4.2), so it needs no code here.
//! Encryption, retransmission and RTCP are str0m's.

pub mod clock;
pub mod h264;
pub mod reorder;

/// Clock rate of H.264, in Hz: RFC 6184 8.2.1.
pub const VIDEO_RATE: u32 = 90_000;

/// Clock rate of Opus, in Hz: RFC 7587 4.1.
pub const AUDIO_RATE: u32 = 48_000;
