//! Tells whether a request to the control plane is the peer's own.
//!
//! An address alone says too little about an administrator. A browser on this machine sends requests
//! for any page it shows, and a proxy sends requests for anybody. So a request counts only if none of
//! its headers names another page or a client behind a proxy. A proxy that adds no header looks like
//! a client. If such a proxy runs at an address of `control.admin`, that list must be changed.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

/// Headers in which proxies name their clients.
const FORWARDED: [&str; 7] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Whether the peer sent the request from one of our pages or from a program of its own.
pub(super) fn is_own(uri: &Uri, headers: &HeaderMap) -> bool {
    !is_forwarded(headers)
        && host(uri, headers).is_some_and(|host| is_own_name(&host) && is_own_page(&host, headers))
}

/// Whether a proxy that names its clients passed the request on.
pub(super) fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// The host that the request names. `None` if it names several or none.
pub(super) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let mut named = headers.get_all(header::HOST).iter();
    let host = match (named.next(), named.next()) {
        (Some(host), None) => host.to_str().ok()?.parse().ok(),
        (None, _) => uri.authority().cloned(),
        (Some(_), Some(_)) => None,
    };
    host.filter(|host| uri.authority().is_none_or(|other| other == host))
}

/// Whether a request names no host at all, and no page either. Browsers always name a host, so none sent it.
pub(super) fn is_nameless(uri: &Uri, headers: &HeaderMap) -> bool {
    let is_named = ["host", "origin", "sec-fetch-site"].iter().any(|it| headers.contains_key(*it));
    uri.authority().is_none() && !is_named
}

/// Whether a page loaded under this name can only be ours. The owner of any other name can point it
/// to this machine, and then the owner's page has the same origin as ours (DNS rebinding).
pub(super) fn is_own_name(host: &Authority) -> bool {
    let name = host.host();
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok()
}

/// Whether no page of another origin sent the request, as far as browsers tell: by `Origin` (RFC
/// 6454 7) and `Sec-Fetch-Site` (Fetch Metadata).
pub(super) fn is_own_page(host: &Authority, headers: &HeaderMap) -> bool {
    let own_origin = headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let (scheme, authority) = origin.split_once("://").unwrap_or_default();
        matches!(scheme, "http" | "https") && *host == authority
    });
    let own_site = headers
        .get_all("sec-fetch-site")
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"));
    own_origin && own_site
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::super::{Credentials, may_administer};
    use super::*;

    fn is_admin(peer: &str, target: &str, headers: &[(&str, &str)]) -> bool {
        let networks = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let target = target.parse().unwrap();
        let credentials = Credentials::of(&target, &map);
        may_administer(&networks, peer.parse().unwrap(), credentials)
    }

    const HERE: &str = "127.0.0.1:50000";

    #[test]
    fn administrators_have_an_address_in_a_listed_network() {
        let host = ("host", "127.0.0.1:8080");
        for (peer, may) in [
            (HERE, true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[::2]:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            assert_eq!(is_admin(peer, "/", &[host]), may, "{peer}");
        }
    }

    #[test]
    fn administrators_use_a_host_name_that_nobody_else_can_have() {
        for (name, may) in [
            ("localhost", true),
            ("LocalHost:8080", true),
            ("127.0.0.1", true),
            ("[::1]:8080", true),
            ("192.168.1.7:8080", true),
            ("rebound.example:8080", false),
            ("127.0.0.1.example", false),
            ("localhost.example", false),
            ("[localhost]", false),
            ("", false),
        ] {
            assert_eq!(is_admin(HERE, "/", &[("host", name)]), may, "{name:?}");
        }
        assert!(!is_admin(HERE, "/", &[]), "nameless");
        assert!(!is_admin(HERE, "/", &[("host", "localhost"), ("host", "localhost")]), "twice");
        // HTTP/2 has the host in the URI.
        assert!(is_admin(HERE, "https://localhost:8443/", &[]));
        assert!(!is_admin(HERE, "https://rebound.example/", &[]));
        assert!(!is_admin(HERE, "https://localhost/", &[("host", "127.0.0.1")]));
    }

    #[test]
    fn administrators_use_no_page_of_another_origin() {
        let host = ("host", "127.0.0.1:8080");
        for (name, value, may) in [
            ("origin", "http://127.0.0.1:8080", true),
            ("origin", "https://127.0.0.1:8080", true),
            ("origin", "http://127.0.0.1:8081", false),
            ("origin", "http://127.0.0.1", false),
            ("origin", "https://elsewhere.example", false),
            ("origin", "chrome-extension://127.0.0.1:8080", false),
            ("origin", "null", false),
            ("origin", "", false),
            ("sec-fetch-site", "same-origin", true),
            ("sec-fetch-site", "none", true),
            ("sec-fetch-site", "same-site", false),
            ("sec-fetch-site", "cross-site", false),
            ("sec-fetch-site", "", false),
            ("accept", "application/json", true),
        ] {
            assert_eq!(is_admin(HERE, "/", &[host, (name, value)]), may, "{name}: {value}");
        }
        let own = ("origin", "http://127.0.0.1:8080");
        assert!(!is_admin(HERE, "/", &[host, own, ("origin", "http://elsewhere.example")]));
    }

    #[test]
    fn administrators_use_no_proxy() {
        for name in FORWARDED {
            let headers = [("host", "127.0.0.1:8080"), (name, "127.0.0.1")];
            assert!(!is_admin(HERE, "/", &headers), "{name}");
        }
    }
}
