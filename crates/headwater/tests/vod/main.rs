//! Files packaged on the fly, over the folder of test media and over files made here, as other
//! people's players and parsers see them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod playback;
mod requests;
mod support;
mod table;
mod tracks;
