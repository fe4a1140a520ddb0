//! Names of live streams and titles. All protocols, the API and the metrics use the same names.

use std::fmt;

use live::backup::Role;

/// Most characters of a refused name that are shown.
const SHOWN: usize = 160;

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

/// As much of a name from a peer as goes into a log or an event.
///
/// Whatever follows a sign of queries may be a mistyped key.
pub(crate) fn shown(name: &str) -> &str {
    let name = name.split(['?', '&', ';', '%']).next().unwrap_or_default();
    name.char_indices().nth(SHOWN).map_or(name, |(end, _)| &name[..end])
}

/// Splits a signed path, `/s/TOKEN/REST`, into its token and `/REST`.
pub(crate) fn signed(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/s/")?;
    let (token, rest) = rest.split_at(rest.find('/')?);
    (!token.is_empty()).then_some((token, rest))
}

/// Makes a path of an RTMP request. Clients split the path into application and name wherever they
/// like. OBS without a stream key has all of it in the application.
///
/// Clients also put `mp4:` before names of MP4 files, as Adobe's server required. librtmp then cuts off `.mp4`.
pub(crate) fn of_rtmp(app: &str, name: &str) -> String {
    let (app, name) = (app.trim_matches('/'), name.trim_matches('/'));
    match name.strip_prefix("mp4:") {
        Some(name) if app == "vod" || app.starts_with("vod/") => {
            let name = name.trim_start_matches('/');
            let file = name.rsplit('/').next().unwrap_or_default();
            let ending = if vod::is_movie(file) { "" } else { ".mp4" };
            format!("{app}/{name}{ending}")
        }
        _ if name.is_empty() => app.to_owned(),
        _ => format!("{app}/{name}"),
    }
}

/// Reads the publisher's role and its rendition from a query.
///
/// `backup=1` makes it the stream's backup. `rendition=NAME` makes it the publisher of that rendition.
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
            ("vod", "mp4:film", "vod/film.mp4"),
            ("vod", "mp4:a.b/film.part", "vod/a.b/film.part.mp4"),
            ("vod", "mp4:film.M4V", "vod/film.M4V"),
            ("vod", "film", "vod/film"),
            ("live", "mp4:x", "live/mp4:x"),
            ("live/a", "", "live/a"),
        ] {
            assert_eq!(of_rtmp(app, name), expected);
        }
    }
}
