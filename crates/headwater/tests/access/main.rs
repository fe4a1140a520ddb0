//! Who may publish and play, asked by programs of other hands over each protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod control;
mod events;
mod expiry;
mod hook;
mod revoked;
mod rules;
mod sessions;
mod signed;
mod support;
