//! WHIP and WHEP, with peers by others: aiortc publishes and plays, ffmpeg reads what came in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod av1;
mod bad_input;
mod companion;
mod foreign;
mod hevc;
mod offers;
mod peer;
mod play;
mod publish;
mod renditions;
mod restart;
mod simulcast;
mod support;
mod tcp;
