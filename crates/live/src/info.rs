//! Who publishes a stream.

use std::net::SocketAddr;

/// Who publishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublisherInfo {
    /// Where from; none for a clip the origin itself publishes.
    pub peer: Option<SocketAddr>,
    /// `rtmp`, `file` for a clip the origin itself publishes, or `ladder` for a rendition that is
    /// made of the stream's own media.
    pub protocol: &'static str,
    /// Name of the rendition, where the stream has several publishers.
    pub rendition: Option<String>,
}
