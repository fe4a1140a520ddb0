//! The publisher of a stream.

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
