//! RTP packets to samples and back. Sans-IO: time is an argument.
//!
//! ```text
//! packets ─▶ reorder ─▶ h264::Depacketizer ─▶ access units      publish, simulated viewers
//! access units ─▶ h264::packetize ─▶ payloads ─▶ srtp          play
//! reports ─▶ clock                                              both tracks on one timeline
//! feedback ─▶ bandwidth ─▶ what the link carries                play
//! ```
//!
//! An Opus packet is the payload of one RTP packet (RFC 7587 4.2), so it needs no code here.
//! `srtp` encrypts what viewers get, and decrypts their RTCP for `feedback`. All else that WebRTC needs of RTP
//! is str0m's: decryption, other RTCP, and what a publisher sends.

pub mod bandwidth;
pub mod clock;
pub mod feedback;
pub mod h264;
pub mod reorder;
pub mod srtp;

/// Clock rate of H.264, in Hz: RFC 6184 8.2.1.
pub const VIDEO_RATE: u32 = 90_000;

/// Clock rate of Opus, in Hz: RFC 7587 4.1.
pub const AUDIO_RATE: u32 = 48_000;
