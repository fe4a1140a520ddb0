//! Names of live streams and titles. All protocols, the API and the metrics use the same names.

use std::fmt;

use live::backup::Role;

/// The path of a live stream or a title: `live/NAME` or `vod/PATH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamPath<'a> {
    /// A live stream, by its name.
    Live(&'a str),
    /// A title or another file, by its path below the VOD root.
    Vod(&'a str),
}

impl<'a> StreamPath<'a> {
    /// Reads a path, with or without a leading slash. Does not check what follows the first
    /// component.
    pub fn parse(path: &'a str) -> Option<Self> {
        let path = path.strip_prefix('/').unwrap_or(path);
        match path.split_once('/')? {
            ("live", name) => Some(Self::Live(name)),
            ("vod", path) => Some(Self::Vod(path)),
            _ => None,
        }
    }
}

impl fmt::Display for StreamPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Live(name) => write!(f, "live/{name}"),
            Self::Vod(path) => write!(f, "vod/{path}"),
        }
    }
}

/// Splits a signed path, `/s/TOKEN/REST`, into its token and `/REST`.
pub(crate) fn signed(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/s/")?;
    let (token, rest) = rest.split_at(rest.find('/')?);
    (!token.is_empty()).then_some((token, rest))
}

/// Makes a path of an RTMP request. Clients split the path into application and name wherever they
/// like. OBS without a stream key has all of it in the application. They also put `mp4:` before names
/// of MP4 files, as Adobe's server required.
pub(crate) fn of_rtmp(app: &str, name: &str) -> String {
    let (app, name) = (app.trim_matches('/'), name.trim_matches('/'));
    match name.strip_prefix("mp4:") {
        Some(name) if app == "vod" || app.starts_with("vod/") => {
            format!("{app}/{}", name.trim_start_matches('/'))
        }
        _ if name.is_empty() => app.to_owned(),
        _ => format!("{app}/{name}"),
    }
}

/// As what a query says that somebody publishes: which of a stream's two publishers, and of which rendition.
pub(crate) fn published_as(query: &str) -> (Role, Option<String>) {
    let mut pairs = query.split('&');
    let rendition = pairs.clone().find_map(|pair| pair.strip_prefix("rendition="));
    let is_backup = pairs.any(|pair| pair == "backup=1");
    let role = if is_backup { Role::Backup } else { Role::Primary };
    (role, rendition.filter(|name| !name.is_empty()).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, expected) in [
            ("live/demo", Some(StreamPath::Live("demo"))),
            ("/live/a/b", Some(StreamPath::Live("a/b"))),
            ("/vod/", Some(StreamPath::Vod(""))),
            ("vod/a/m.mp4", Some(StreamPath::Vod("a/m.mp4"))),
            ("live", None),
            ("livedemo/x", None),
            ("//live/x", None),
            ("", None),
        ] {
            assert_eq!(StreamPath::parse(path), expected, "{path}");
            if let Some(expected) = expected {
                assert_eq!(expected.to_string(), path.trim_start_matches('/'));
            }
        }
    }

    #[test]
    fn signed_paths() {
        for (path, expected) in [
            ("/s/abc/live/x/index.m3u8", Some(("abc", "/live/x/index.m3u8"))),
            ("/s/abc/", Some(("abc", "/"))),
            ("/s/abc", None),
            ("/s//live/x", None),
            ("/live/s/abc/x", None),
        ] {
            assert_eq!(signed(path), expected, "{path}");
        }
    }

    #[test]
    fn queries_of_publishers() {
        let low = || Some("low".to_owned());
        for (query, role, rendition) in [
            ("", Role::Primary, None),
            ("backup=1", Role::Backup, None),
            ("token=x&backup=1&rendition=", Role::Backup, None),
            ("rendition=low&backup=0", Role::Primary, low()),
            ("backup=10&rendition=low", Role::Primary, low()),
            ("rendition=low&backup=1", Role::Backup, low()),
        ] {
            assert_eq!(published_as(query), (role, rendition), "{query}");
        }
    }

    #[test]
    fn rtmp_splits_them_anywhere() {
        for (app, name, expected) in [
            ("live", "demo", "live/demo"),
            ("live/a", "/b/", "live/a/b"),
            ("/vod/", "mp4:a/m.mp4", "vod/a/m.mp4"),
            ("vod/a", "mp4:m.mp4", "vod/a/m.mp4"),
            ("live", "mp4:x", "live/mp4:x"),
            ("live/a", "", "live/a"),
        ] {
            assert_eq!(of_rtmp(app, name), expected);
        }
    }
}
