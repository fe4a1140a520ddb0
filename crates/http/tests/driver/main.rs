//! Tests the connection driver over real sockets.

mod bodies;
mod connections;
mod control;
mod requests;
mod support;
