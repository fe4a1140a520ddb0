//! The request target (RFC 9112 3.2): its forms, percent-decoding, and checks of the path.

use std::borrow::Cow;

use crate::bad_request::BadRequest;

/// The parts of a target, as received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// The authority of the absolute form, which overrides `Host` (RFC 9112 3.2.2).
    pub(crate) authority: Option<&'a str>,
    /// Begins with `/`, or is `*`.
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

/// Splits a target in origin, absolute or asterisk form. The authority form belongs to CONNECT,
/// which is not supported.
pub(crate) fn split(target: &str) -> Result<Target<'_>, BadRequest> {
    if target == "*" {
        return Ok(Target { authority: None, path: target, query: None });
    }
    if target.contains('#') {
        return Err(BadRequest::Target);
    }
    let (authority, rest) = if target.starts_with('/') {
        (None, target)
    } else {
        let (scheme, rest) = target.split_once("://").ok_or(BadRequest::Target)?;
        if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
            return Err(BadRequest::Target);
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        if authority.is_empty() || !is_host(authority) {
            return Err(BadRequest::Target);
        }
        (Some(authority), rest)
    };
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    Ok(Target { authority, path: if path.is_empty() { "/" } else { path }, query })
}

/// Whether a `Host` value is valid (RFC 3986 3.2.2 and a port): no delimiters of other parts, no
/// space, only ASCII.
pub(crate) fn is_host(host: &str) -> bool {
    // The colons of an IPv6 address are inside brackets.
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, ""),
    };
    port.bytes().all(|byte| byte.is_ascii_digit())
        && name.bytes().all(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b':')
            // Brackets of an IPv6 address, and the sub-delimiters that a registered name may have.
            || matches!(byte, b'[' | b']' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*')
            || matches!(byte, b'+' | b';' | b'=')
        })
}

/// The path, percent-decoded once, with runs of slashes merged.
///
/// Refuses everything that a file system may read differently than a human: dot segments, encoded
/// slashes, backslashes, control characters.
pub(crate) fn decode_path(path: &str) -> Result<Cow<'_, str>, BadRequest> {
    if path == "*" {
        return Ok(Cow::Borrowed(path));
    }
    let decoded = decode(path, false)?;
    let slashes = |text: &str| text.bytes().filter(|&byte| byte == b'/').count();
    if slashes(&decoded) != slashes(path)
        || decoded.bytes().any(|byte| byte == b'\\' || byte.is_ascii_control())
        || decoded.split('/').any(|segment| segment == "." || segment == "..")
    {
        return Err(BadRequest::Path);
    }
    if decoded.contains("//") {
        let mut merged = String::with_capacity(decoded.len());
        for character in decoded.chars() {
            if character != '/' || !merged.ends_with('/') {
                merged.push(character);
            }
        }
        return Ok(Cow::Owned(merged));
    }
    Ok(decoded)
}

/// Percent-decodes text that is not a path.
///
/// # Errors
/// It is no percent-encoding of UTF-8.
pub fn percent_decode(text: &str) -> Result<Cow<'_, str>, BadRequest> {
    decode(text, false)
}

/// Percent-decodes; `form` also turns `+` into a space, as in queries.
pub(crate) fn decode(text: &str, form: bool) -> Result<Cow<'_, str>, BadRequest> {
    if !text.bytes().any(|byte| byte == b'%' || (form && byte == b'+')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || {
                    bytes.next().and_then(|digit| char::from(digit).to_digit(16)).map(|d| d as u8)
                };
                match (digit(), digit()) {
                    (Some(high), Some(low)) => high << 4 | low,
                    _ => return Err(BadRequest::PercentEncoding),
                }
            }
            b'+' if form => b' ',
            other => other,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| BadRequest::PercentEncoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let parts = |target| split(target).map(|t| (t.authority, t.path, t.query)).ok();
        assert_eq!(parts("/a/b?c=d?e"), Some((None, "/a/b", Some("c=d?e"))));
        assert_eq!(parts("/"), Some((None, "/", None)));
        assert_eq!(parts("*"), Some((None, "*", None)));
        assert_eq!(parts("http://h:1/a?b"), Some((Some("h:1"), "/a", Some("b"))));
        assert_eq!(parts("HTTPS://[::1]:1"), Some((Some("[::1]:1"), "/", None)));
        assert_eq!(parts("http://h?b"), Some((Some("h"), "/", Some("b"))));
        for bad in [
            "",
            "a",
            "h:443",
            "ftp://h/",
            "http:///a",
            "http://u@h/",
            "/a#b",
            "?a",
            "**",
            "http://h:x/",
        ] {
            assert_eq!(split(bad), Err(BadRequest::Target), "{bad}");
        }
    }

    #[test]
    fn paths() {
        for (path, decoded) in [
            ("/a/b", "/a/b"),
            ("/a%20b/%e2%82%ac", "/a b/€"),
            ("/€", "/€"),
            ("//a///b//", "/a/b/"),
            ("/a+b", "/a+b"),
            ("/...", "/..."),
            ("/%2541", "/%41"),
        ] {
            assert_eq!(decode_path(path).as_deref(), Ok(decoded), "{path}");
        }
        for path in
            ["/..", "/a/../b", "/%2e%2E/b", "/./a", "/a%2fb", "/a%5Cb", "/a\\b", "/a%00", "/a%0ab"]
        {
            assert_eq!(decode_path(path), Err(BadRequest::Path), "{path}");
        }
        for path in ["/%", "/%4", "/%zz", "/%+1", "/%ff", "/%c0%af"] {
            assert_eq!(decode_path(path), Err(BadRequest::PercentEncoding), "{path}");
        }
    }
}
