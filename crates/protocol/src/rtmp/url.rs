use super::Error;

/// The parts of `rtmp://HOST[:PORT]/APP/NAME[?QUERY]`.
///
/// The application is the first path segment. Everything behind it is the name, including slashes
/// and the query, as publishers send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port, 1935 if the URL names none.
    pub port: u16,
    /// Application.
    pub app: String,
    /// Stream name with its query; may be empty.
    pub name: String,
    /// What `connect` calls `tcUrl`: the URL up to the application.
    pub tc_url: String,
}

impl Url {
    /// Splits a URL into its parts.
    ///
    /// # Errors
    /// The URL does not have this form, or has another scheme. Positions count within `text`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = |what: &'static str, part: &str| {
            // `part` is a slice of `text`, so this cannot be negative.
            let at = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
            Error::caller(what, at as u64)
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(bad("a URL without a scheme", text));
        };
        if !scheme.eq_ignore_ascii_case("rtmp") {
            return Err(bad("a URL of another scheme than rtmp", text));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
            bracketed.split_once(']').ok_or_else(|| bad("an IPv6 address without its end", rest))?
        } else {
            authority.split_at(authority.find(':').unwrap_or(authority.len()))
        };
        if host.is_empty() {
            return Err(bad("a URL without a host", rest));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => 1935,
            Some(digits) => digits.parse().map_err(|_| bad("a bad port", port))?,
            None => return Err(bad("a bad port", port)),
        };
        let (app, name) = path.split_once('/').unwrap_or((path, ""));
        if app.is_empty() {
            return Err(bad("a URL without an application", path));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            app: app.to_owned(),
            name: name.to_owned(),
            tc_url: format!("rtmp://{authority}/{app}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let url = Url::parse("rtmp://h.example/live/a/b?k=v/w").unwrap();
        assert_eq!((url.host.as_str(), url.port), ("h.example", 1935));
        assert_eq!((url.app.as_str(), url.name.as_str()), ("live", "a/b?k=v/w"));
        assert_eq!(url.tc_url, "rtmp://h.example/live");
        let url = Url::parse("RTMP://[::1]:1936/live").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.name.as_str()), ("::1", 1936, ""));
        assert_eq!(url.tc_url, "rtmp://[::1]:1936/live");
    }

    #[test]
    fn refused() {
        for text in [
            "",
            "rtmp:",
            "http://h/live",
            "rtmp://",
            "rtmp:///live",
            "rtmp://h",
            "rtmp://h/",
            "rtmp://h:0x/live",
            "rtmp://h:99999/live",
            "rtmp://[::1/live",
            "rtmp://[::1]x/live",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }
}
