//! Checks playlists with another parser and as text, and when requests are answered.

mod read_back;
mod requests;
mod support;
mod text;
