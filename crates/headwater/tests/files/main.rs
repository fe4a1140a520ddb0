//! `/vod/PATH`: a file's own bytes, by the whole server.

mod conditional;
mod folders;
mod ranges;
mod sending;
mod support;
mod versions;
