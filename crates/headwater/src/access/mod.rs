//! Access control, in one place for all protocols.
//!
//! Today everybody may publish, play and observe. Only requests from certain networks may
//! administer.

mod page;
#[cfg_attr(not(test), expect(dead_code, reason = "wired next"))]
mod remote;
#[cfg_attr(not(test), expect(dead_code, reason = "wired next"))]
mod webhook;

use std::net::SocketAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use ipnet::IpNet;

use crate::path::StreamPath;

/// A peer's wish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// Send media of a live stream.
    Publish(StreamPath<'a>),
    /// Get media of a stream or a title, by any delivery, or learn about it.
    Play(StreamPath<'a>),
    /// Learn about the origin as a whole: the list of its streams, and its metrics.
    Observe,
    /// See the addresses of publishers. Only peers in these networks may.
    Administer(&'a [IpNet]),
}

/// A peer's credentials, as the protocol carries them.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The part of a URL after the `?`.
    pub query: &'a str,
    /// The `Authorization` header of HTTP.
    pub authorization: Option<&'a str>,
    /// Whether the peer sent this HTTP request for itself: no page of another site asked for it, and
    /// no client behind a proxy.
    pub own: bool,
}

impl<'a> Credentials<'a> {
    /// The credentials in a request to the control plane.
    pub(crate) fn of(uri: &'a Uri, headers: &'a HeaderMap) -> Self {
        let authorization = headers.get(header::AUTHORIZATION).map(HeaderValue::to_str);
        Self {
            query: uri.query().unwrap_or_default(),
            authorization: authorization.and_then(Result::ok),
            own: page::is_own(uri, headers),
        }
    }
}

/// The host that a request names, in HTTP/2 too. `None` if it names several or none.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    page::host(uri, headers)
}

/// Whether no page of another origin sent the request, as far as browsers tell.
pub(crate) fn is_of_own_page(uri: &Uri, headers: &HeaderMap) -> bool {
    host(uri, headers).is_some_and(|host| page::is_own_page(&host, headers))
}

/// Whether `peer` may do `action`.
pub fn may(action: Action<'_>, peer: SocketAddr, with: Credentials<'_>) -> bool {
    // Queries and `Authorization` headers are not checked yet, and never logged.
    let proves = !with.query.is_empty() || with.authorization.is_some();
    tracing::trace!(?action, %peer, proves, own = with.own, "access");
    match action {
        Action::Publish(StreamPath::Live(_)) | Action::Play(_) | Action::Observe => true,
        // A title is a file and cannot be published.
        Action::Publish(StreamPath::Vod(_)) => false,
        Action::Administer(networks) => {
            let address = peer.ip().to_canonical();
            with.own && networks.iter().any(|network| network.contains(&address))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_not_published() {
        let peer = "192.0.2.1:5000".parse().unwrap();
        let may = |action| may(action, peer, Credentials::default());
        let path = |path| StreamPath::parse(path).unwrap();
        assert!(may(Action::Play(path("live/a"))) && may(Action::Play(path("vod/a.mp4"))));
        assert!(may(Action::Publish(path("live/a"))) && !may(Action::Publish(path("vod/a.mp4"))));
    }
}
