//! Several nodes as one. The NATS servers are real ones.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod failover;
mod guarded;
mod outage;
mod routes;
mod same;
mod servers;
mod support;
mod webrtc;
