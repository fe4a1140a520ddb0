//! Access control, in one place for all protocols.
//!
//! Today everybody may publish and play. The right to administer depends on the request as a whole;
//! `control::admin` decides it.

use std::net::SocketAddr;

use crate::path::StreamPath;

/// What a peer wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Send media of a live stream.
    Publish,
    /// Get media of a stream or a title, by any delivery, or learn about it.
    Play,
}

/// A peer's credentials, as the protocol carries them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The part of a URL after the `?`.
    pub query: &'a str,
    /// The `Authorization` header of HTTP.
    pub authorization: Option<&'a str>,
}

/// Whether `peer` may do `action` with `path`.
pub fn may(action: Action, path: StreamPath<'_>, peer: SocketAddr, with: Credentials<'_>) -> bool {
    // The credentials are not checked yet, and never logged.
    let proves = !with.query.is_empty() || with.authorization.is_some();
    tracing::trace!(?action, %path, %peer, proves, "access");
    match (action, path) {
        (Action::Publish | Action::Play, StreamPath::Live(_))
        | (Action::Play, StreamPath::Vod(_)) => true,
        // A title is a file and cannot be published.
        (Action::Publish, StreamPath::Vod(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_not_published() {
        let peer = "192.0.2.1:5000".parse().unwrap();
        let may = |action, path| {
            may(action, StreamPath::parse(path).unwrap(), peer, Credentials::default())
        };
        assert!(may(Action::Play, "live/a") && may(Action::Play, "vod/a.mp4"));
        assert!(may(Action::Publish, "live/a") && !may(Action::Publish, "vod/a.mp4"));
    }
}
