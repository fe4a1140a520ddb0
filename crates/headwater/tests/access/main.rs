//! Who may publish and play, asked by programs of other hands over each protocol.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod expiry;
mod hook;
mod rules;
mod signed;
mod support;
