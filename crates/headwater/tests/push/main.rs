//! Streams pushed over WebSocket: to a client by others, and to clients that break the protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod choice;
mod deliver;
mod frames;
mod renditions;
mod requests;
mod slow;
mod steering;
mod support;
mod titles;
mod window;
