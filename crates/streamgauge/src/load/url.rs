//! Absolute `http` and `https` URLs, as far as a request needs them, and `limit` URLs for requests
//! without HTTP.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a URL is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not a URL that can be asked for: {reason}")]
pub struct Invalid {
    url: String,
    reason: &'static str,
}

/// The protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// HTTP over TCP.
    Http,
    /// HTTP over TLS.
    Https,
    /// No HTTP: for each byte from a client, the server sends a fixed number of bytes, as `baseline
    /// limit` does.
    Limit,
}

impl Scheme {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Limit => "limit",
        }
    }

    fn default_port(self) -> Option<u16> {
        match self {
            Self::Http => Some(80),
            Self::Https => Some(443),
            Self::Limit => None,
        }
    }
}

/// Destination of connections: scheme, host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The protocol.
    pub scheme: Scheme,
    /// A name or an address. An IPv6 address has no brackets.
    pub host: String,
    /// The port; without one in the URL, the scheme's own.
    pub port: u16,
}

impl Origin {
    /// Value of the Host field. It has the port unless that is the scheme's own (RFC 9110, 7.2).
    pub fn host_field(&self) -> String {
        let host =
            if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.scheme.default_port() == Some(self.port) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Whether the protocol is over TLS.
    pub fn is_secure(&self) -> bool {
        self.scheme == Scheme::Https
    }
}

/// A URL: a server, and what to ask it for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Url {
    /// The server.
    pub origin: Origin,
    /// The path and query, as sent in the request line; begins with a slash.
    pub path: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.origin.scheme.name();
        write!(f, "{scheme}://{}{}", self.origin.host_field(), self.path)
    }
}

impl Url {
    /// Parses an absolute URL (RFC 3986). Drops a fragment. Refuses user information, and bytes
    /// that must be percent-encoded.
    ///
    /// # Errors
    /// [`Invalid`], with the reason.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let invalid = |reason| Invalid { url: text.chars().take(200).collect(), reason };
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(invalid("it has spaces or characters that must be percent-encoded"));
        }
        let whole = text.split('#').next().unwrap_or_default();
        let (scheme, rest) =
            whole.split_once("://").ok_or_else(|| invalid("no http:// or https:// before it"))?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "limit" => Scheme::Limit,
            _ => return Err(invalid("the scheme is neither http nor https")),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(invalid("user information is not sent"));
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, port) = v6.split_once(']').ok_or_else(|| invalid("no ] after ["))?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, Some("")),
            },
        };
        let port = match port {
            Some("") => scheme.default_port().ok_or_else(|| invalid("no port"))?,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(|| invalid("no such port"))?,
            _ => return Err(invalid("no such port")),
        };
        if host.is_empty() {
            return Err(invalid("no host"));
        }
        if scheme == Scheme::Limit && !matches!(path, "" | "/") {
            return Err(invalid("limit:// has no paths"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { origin: Origin { scheme, host: host.to_ascii_lowercase(), port }, path })
    }

    /// Resolves a Location field against this URL (RFC 3986, 5.2). Dot segments are left to the
    /// server.
    ///
    /// # Errors
    /// [`Invalid`], with the reason.
    pub fn join(&self, location: &str) -> Result<Self, Invalid> {
        let scheme_end = location.find("://");
        let authority_like = location.find(['/', '?', '#']).unwrap_or(location.len());
        if scheme_end.is_some_and(|at| at < authority_like) {
            return Self::parse(location);
        }
        let scheme = self.origin.scheme.name();
        if location.starts_with("//") {
            return Self::parse(&format!("{scheme}:{location}"));
        }
        let path = self.path.split('?').next().unwrap_or_default();
        let joined = if location.starts_with('/') {
            location.to_owned()
        } else if location.starts_with('?') || location.is_empty() || location.starts_with('#') {
            format!("{path}{location}")
        } else {
            let folder = path.rfind('/').map_or("/", |slash| &path[..=slash]);
            format!("{folder}{location}")
        };
        Self::parse(&format!("{scheme}://{}{joined}", self.origin.host_field()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_put_together() {
        for (text, host, port, path, again) in [
            ("http://a.b/c?d=e", "a.b", 80, "/c?d=e", "http://a.b/c?d=e"),
            ("HTTP://A.b:8080", "a.b", 8080, "/", "http://a.b:8080/"),
            ("https://h:443?q", "h", 443, "/?q", "https://h/?q"),
            ("http://[::1]:81/x#frag", "::1", 81, "/x", "http://[::1]:81/x"),
            ("http://[::1]", "::1", 80, "/", "http://[::1]/"),
            ("limit://h:5", "h", 5, "/", "limit://h:5/"),
        ] {
            let url = Url::parse(text).unwrap();
            let found = (url.origin.host.as_str(), url.origin.port, url.path.as_str());
            assert_eq!(found, (host, port, path));
            assert_eq!(url.to_string(), again);
        }
    }

    #[test]
    fn bad_urls_are_refused_with_the_reason() {
        for (text, reason) in [
            ("a.b/c", "no http:// or https:// before it"),
            ("rtmp://a/b", "the scheme is neither http nor https"),
            ("http://u:p@h/", "user information is not sent"),
            ("http://:80/", "no host"),
            ("limit://h", "no port"),
            ("limit://h:80/x", "limit:// has no paths"),
            ("http://h:0/", "no such port"),
            ("http://h:70000/", "no such port"),
            ("http://h:+80/", "no such port"),
            ("http://[::1/", "no ] after ["),
            ("http://[::1]x/", "no such port"),
            ("http://h/a b", "it has spaces or characters that must be percent-encoded"),
            ("http://h/ä", "it has spaces or characters that must be percent-encoded"),
        ] {
            assert_eq!(Url::parse(text).unwrap_err().reason, reason, "{text}");
        }
    }

    #[test]
    fn locations_lead_on() {
        let from = Url::parse("http://h:81/a/b?c=d").unwrap();
        for (location, to) in [
            ("/x", "http://h:81/x"),
            ("x?y", "http://h:81/a/x?y"),
            ("?y", "http://h:81/a/b?y"),
            ("", "http://h:81/a/b"),
            ("//other/z", "http://other/z"),
            ("https://o/z", "https://o/z"),
            ("/go?to=http://x/", "http://h:81/go?to=http://x/"),
        ] {
            assert_eq!(from.join(location).unwrap().to_string(), to, "{location}");
        }
        assert!(from.join("ftp://x/").is_err());
    }
}
