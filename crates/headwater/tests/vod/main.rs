//! Files packaged on the fly, from the folder of test media and from files made here, as players
//! and parsers by others see them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod playback;
mod requests;
mod support;
mod table;
mod tracks;
