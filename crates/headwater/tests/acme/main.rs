//! Certificates by ACME, from pebble, the authority that Let's Encrypt tests clients with. openssl and curl see what is
//! served.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod issued;
mod refused;
mod support;
mod trouble;
