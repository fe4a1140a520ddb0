//! The media plane with TLS, by HTTP/1.1 and HTTP/2, as curl, ffmpeg and openssl see it.

mod certificates;
mod files;
mod limits;
mod live;
mod support;
