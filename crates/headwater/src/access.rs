//! Who may do what: the one place that decides it, whatever the protocol.
//!
//! Today everybody may publish and play. Who may administer is a matter of the request as a whole, and is decided by
//! `control::admin` before it asks here.

use std::net::SocketAddr;

use crate::path::StreamPath;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To send media of a live stream.
    Publish,
    /// To get media of a stream or a title, by any delivery, and to know of it.
    Play,
}

/// What somebody says to prove it, as the protocol carries it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// What follows the `?` of a URL.
    pub query: &'a str,
    /// The `Authorization` field of HTTP.
    pub authorization: Option<&'a str>,
}

/// Whether `peer` may do this with `path`.
pub fn may(action: Action, path: StreamPath<'_>, peer: SocketAddr, with: Credentials<'_>) -> bool {
    // What proves it is not looked at yet, and never logged.
    let proves = !with.query.is_empty() || with.authorization.is_some();
    tracing::trace!(?action, %path, %peer, proves, "access");
    match (action, path) {
        (Action::Publish | Action::Play, StreamPath::Live(_))
        | (Action::Play, StreamPath::Vod(_)) => true,
        // A title is a file: nobody publishes it.
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
