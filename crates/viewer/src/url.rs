//! HTTP and WebSocket URLs, and references to them (RFC 3986).

use std::fmt;

use crate::{Error, Kind};

/// Longest URL that a playlist or a redirect may have.
const MAX: usize = 16 << 10;

/// Scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
    Ws,
    Wss,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Http, Self::Https, Self::Ws, Self::Wss];

    fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
        }
    }

    fn is_secure(self) -> bool {
        matches!(self, Self::Https | Self::Wss)
    }

    fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

/// `SCHEME://HOST[:PORT]/PATH[?QUERY]` with the scheme `http`, `https`, `ws` or `wss`. The fragment
/// is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    authority: String,
    /// Length of the host within the authority, including brackets.
    host: usize,
    port: u16,
    /// Path and query, beginning with the slash.
    target: String,
}

impl Url {
    /// Parses a URL.
    ///
    /// # Errors
    /// It is malformed, or has another scheme.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |kind, what: &'static str| {
            let shown: String = text.chars().take(200).collect();
            Err(Error::new(kind, what).at(shown))
        };
        if text.len() > MAX {
            return bad(Kind::Garbage, "URL too long");
        }
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7F) {
            return bad(Kind::Garbage, "URL with blanks or control characters");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return bad(Kind::Garbage, "URL without a scheme");
        };
        let known = Scheme::ALL.into_iter().find(|s| scheme.eq_ignore_ascii_case(s.name()));
        let Some(scheme) = known else {
            return bad(Kind::Unsupported, "URL of another scheme than http, https, ws or wss");
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at_checked(end).unwrap_or((rest, ""));
        // A Host field has no place for a user name.
        let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
        let host = match authority.strip_prefix('[') {
            Some(v6) => v6.find(']').map(|end| end + 2),
            None => Some(authority.find(':').unwrap_or(authority.len())),
        };
        let Some(host) = host.filter(|&host| host > 0) else {
            return bad(Kind::Garbage, "URL without a host");
        };
        let port = match authority.get(host..).unwrap_or_default() {
            "" | ":" => Some(if scheme.is_secure() { 443 } else { 80 }),
            port => port.strip_prefix(':').and_then(|digits| digits.parse().ok()),
        };
        let Some(port) = port else { return bad(Kind::Garbage, "URL with a bad port") };
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        Ok(Self { scheme, authority: authority.to_owned(), host, port, target })
    }

    /// A URL that never leads anywhere.
    pub(crate) fn nowhere() -> Self {
        let authority = "invalid.".to_owned();
        Self {
            scheme: Scheme::Http,
            host: authority.len(),
            authority,
            port: 0,
            target: "/".to_owned(),
        }
    }

    /// The host; an IPv6 address has no brackets.
    pub fn host(&self) -> &str {
        let host = self.authority.get(..self.host).unwrap_or(&self.authority);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The port; without one in the URL, the scheme's own.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it asks for TLS.
    pub fn is_secure(&self) -> bool {
        self.scheme.is_secure()
    }

    /// Host and port as the URL writes them.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// Resolves a reference that was found under this URL (RFC 3986 5.2).
    ///
    /// # Errors
    /// It is malformed, or has another scheme.
    pub fn resolve(&self, reference: &str) -> Result<Self, Error> {
        let reference = reference.split('#').next().unwrap_or_default();
        let scheme_end = reference.find([':', '/', '?']);
        if scheme_end.is_some_and(|at| reference[at..].starts_with(':')) {
            let other = Self::parse(reference)?;
            if other.scheme.is_http() != self.scheme.is_http() {
                let what = "reference from HTTP to WebSocket, or back";
                return Err(Error::new(Kind::Unsupported, what).at(other));
            }
            return Ok(other);
        }
        let scheme = self.scheme.name();
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let (path, query) = match reference.find('?') {
            Some(at) => reference.split_at_checked(at).unwrap_or((reference, "")),
            None => (reference, ""),
        };
        let target = if path.is_empty() {
            if query.is_empty() { self.target.clone() } else { format!("{}{query}", self.path()) }
        } else if path.starts_with('/') {
            format!("{}{query}", without_dots(path))
        } else {
            let base = self.path();
            let folder = base.rfind('/').and_then(|at| base.get(..=at)).unwrap_or("/");
            format!("{}{query}", without_dots(&format!("{folder}{path}")))
        };
        let authority = &self.authority;
        Self::parse(&format!("{scheme}://{authority}{target}"))
    }

    /// Adds query parameters, `a=1&b=2`.
    pub fn with_query(&self, more: &str) -> Self {
        let separator = if self.target.contains('?') { '&' } else { '?' };
        Self { target: format!("{}{separator}{more}", self.target), ..self.clone() }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme.name(), self.authority, self.target)
    }
}

/// Removes `.` and `..` (RFC 3986 5.2.4) from a path that starts with a slash.
fn without_dots(path: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        match part {
            "." if last => out.push(""),
            "." => {}
            ".." => {
                out.pop();
                if last {
                    out.push("");
                }
            }
            part => out.push(part),
        }
    }
    format!("/{}", out.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let url = Url::parse("HTTP://user@h.example:81/a/b?c=/d#e").unwrap();
        assert_eq!((url.host(), url.port(), url.authority()), ("h.example", 81, "h.example:81"));
        assert_eq!((url.target(), url.path()), ("/a/b?c=/d", "/a/b"));
        let url = Url::parse("http://[::1]?x").unwrap();
        assert_eq!((url.host(), url.port(), url.target()), ("::1", 80, "/?x"));
        for text in [
            "",
            "http://",
            "http://:80/",
            "http:///a",
            "http://h:x/",
            "http://h/a b",
            "http://[::1",
        ] {
            assert_eq!(Url::parse(text).unwrap_err().kind, Kind::Garbage, "{text}");
        }
        assert_eq!(Url::parse("ftp://h/").unwrap_err().kind, Kind::Unsupported);
        for (text, port, secure) in
            [("https://h/a", 443, true), ("WSS://h:8/a", 8, true), ("ws://h/a", 80, false)]
        {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.port(), url.is_secure()), (port, secure), "{text}");
            assert_eq!(url.to_string(), text.replace("WSS", "wss"));
        }
    }

    /// RFC 3986 5.4, as far as players need it.
    #[test]
    fn references() {
        let base = Url::parse("http://a/b/c/d?q").unwrap();
        for (reference, resolved) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("g?y/./x", "http://a/b/c/g?y/./x"),
            ("", "http://a/b/c/d?q"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("/./g/../h", "http://a/h"),
            ("http://x/y", "http://x/y"),
        ] {
            assert_eq!(base.resolve(reference).unwrap().to_string(), resolved, "{reference}");
        }
        assert!(base.resolve("data:text/plain,x").is_err());
        assert!(base.resolve("ws://h/").is_err());
        assert_eq!(base.resolve("https://h/x").unwrap().to_string(), "https://h/x");
        let secure = Url::parse("https://a:1/b/c").unwrap();
        for (reference, resolved) in [("g", "https://a:1/b/g"), ("//g/h", "https://g/h")] {
            assert_eq!(secure.resolve(reference).unwrap().to_string(), resolved, "{reference}");
        }
        assert_eq!(base.with_query("n=1").target(), "/b/c/d?q&n=1");
    }
}
