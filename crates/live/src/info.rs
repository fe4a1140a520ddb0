//! Who publishes a stream, and whether anybody does.

use std::net::SocketAddr;

/// A publisher: who it is and what it publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherInfo {
    /// Its address; `None` for a clip that the origin itself publishes and for a rendition that is
    /// made here.
    pub peer: Option<SocketAddr>,
    /// `rtmp`, `file` for a clip that the origin itself publishes, or `ladder` for a rendition that
    /// is made of the stream's own media.
    pub protocol: &'static str,
    /// Name of the rendition, if the stream has several publishers.
    pub rendition: Option<String>,
}

/// Whether a stream is live, offline or over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Somebody publishes.
    Live,
    /// The publisher was lost and may come back.
    Offline,
    /// The stream is over. Viewers can watch the rest of its window for a while.
    Ended,
}
