//! RTMP sessions in memory: a client with a server, and a server with hostile clients.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod broken;
mod by_hand;
mod pair;
mod recorded;
mod support;
