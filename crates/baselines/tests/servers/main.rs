//! Tests every model as a process, and the thread pool in C: with the same table of requests,
//! hostile input, silent peers, many clients, curl and ffmpeg.

#![expect(clippy::unwrap_used, reason = "this is all test code, also outside the test functions")]

mod connections;
mod hostile;
mod limit;
mod players;
mod requests;
mod support;
