//! Patterns of paths.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest pattern in bytes. A path is compared with it in time proportional to both lengths.
const LONGEST: usize = 256;

/// A pattern of paths such as `live/NAME` and `vod/PATH`. `*` stands for any text without `/`, and `**` for any text.
/// Everything else stands for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// Why a text is no [`Pattern`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a pattern of paths such as live/* or vod/films/**: {why}")]
pub struct NotAPattern {
    text: String,
    why: &'static str,
}

impl Pattern {
    /// The pattern of all paths.
    pub fn all() -> Self {
        Self("**".to_owned())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern stands for `path`, which has no leading slash and is already decoded. A path with dot
    /// segments, backslashes or control characters is never matched: two programs may read such a path differently.
    pub fn matches(&self, path: &str) -> bool {
        is_plain(path) && is_match(self.0.as_bytes(), path.as_bytes())
    }
}

impl FromStr for Pattern {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let why = if text.is_empty() {
            "it is empty"
        } else if text.len() > LONGEST {
            "it is longer than 256 bytes"
        } else if text.starts_with('/') {
            "it begins with a slash"
        } else if text.contains("***") {
            "it has more than two stars in a row"
        } else if text.contains("//") || text.contains('%') {
            "it has two slashes in a row, or a percent sign"
        } else if !is_plain(text) {
            "it has a dot segment, a backslash or a control character"
        } else {
            return Ok(Self(text.to_owned()));
        };
        let text = text.chars().take(LONGEST).collect();
        Err(NotAPattern { text, why })
    }
}

impl TryFrom<String> for Pattern {
    type Error = NotAPattern;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether all programs read the path the same.
fn is_plain(path: &str) -> bool {
    !path.contains('\\')
        && !path.chars().any(char::is_control)
        && path.split('/').all(|segment| segment != "." && segment != "..")
}

/// A place at which a star began: the pattern after it, and how much of the path it stands for so far.
#[derive(Clone, Copy)]
struct Star {
    after: usize,
    taken: usize,
}

/// Compares from left to right. Where it fails, the last star that may take one more byte does.
fn is_match(pattern: &[u8], path: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    // The last star of each kind is enough: what the one before it matched stays matched.
    let (mut one, mut two): (Option<Star>, Option<Star>) = (None, None);
    loop {
        if pattern[at..].starts_with(b"**") {
            at += 2;
            (one, two) = (None, Some(Star { after: at, taken: place }));
        } else if pattern.get(at) == Some(&b'*') {
            at += 1;
            one = Some(Star { after: at, taken: place });
        } else if at == pattern.len() && place == path.len() {
            return true;
        } else if at < pattern.len() && pattern.get(at) == path.get(place) {
            (at, place) = (at + 1, place + 1);
        } else if let Some(star) = one.filter(|s| path.get(s.taken).is_some_and(|b| *b != b'/')) {
            (at, place) = (star.after, star.taken + 1);
            one = Some(Star { taken: place, ..star });
        } else if let Some(star) = two.filter(|star| star.taken < path.len()) {
            (at, place) = (star.after, star.taken + 1);
            (one, two) = (None, Some(Star { taken: place, ..star }));
        } else {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn stars_stand_for_text() {
        for (text, path, expected) in [
            ("live/a", "live/a", true),
            ("live/a", "live/ab", false),
            ("live/a", "live/", false),
            ("live/*", "live/a", true),
            ("live/*", "live/", true),
            ("live/*", "live/a/b", false),
            ("live/*/b", "live/a/b", true),
            ("live/*/b", "live/a/a/b", false),
            ("live/**", "live/a/b", true),
            ("live/**", "vod/a/b", false),
            ("**", "vod/a/b", true),
            ("**", "", true),
            ("vod/**.mp4", "vod/a/b.mp4", true),
            ("vod/**.mp4", "vod/a/b.mp4.m3u8", false),
            ("vod/*-*.mp4", "vod/a-b-c.mp4", true),
            ("vod/**/*.mp4", "vod/a/b/c.mp4", true),
            ("vod/**/*.mp4", "vod/c.mp4", false),
            ("live/cam?", "live/cam1", false),
            ("**a*b", "a/xaxxb", true),
            ("**a*b", "a/xa/xb", false),
        ] {
            assert_eq!(pattern(text).matches(path), expected, "{text} {path}");
        }
    }

    #[test]
    fn paths_that_can_be_read_in_two_ways_match_nothing() {
        for path in ["live/../a", "live/./a", "..", "live/a\0", "live\\a", "live/a\n", "vod/a/.."] {
            assert!(!Pattern::all().matches(path), "{path:?}");
        }
        assert!(Pattern::all().matches("live/..a/b.."));
    }

    #[test]
    fn texts_that_are_no_patterns() {
        let long = "a".repeat(LONGEST + 1);
        for text in
            ["", "/live/a", "live//a", "live/../a", "live/%2fa", "live/a\0", "a\\b", "***", &long]
        {
            assert!(text.parse::<Pattern>().is_err(), "{text:?}");
        }
        let error = "live/../a".parse::<Pattern>().unwrap_err().to_string();
        assert!(error.starts_with("\"live/../a\" is not a pattern"), "{error}");
    }

    /// The definition, without care for time.
    fn is_defined(pattern: &[u8], path: &[u8]) -> bool {
        let any = |rest: &[u8], most: usize| (0..=most).any(|n| is_defined(rest, &path[n..]));
        match pattern {
            [] => path.is_empty(),
            [b'*', b'*', rest @ ..] => any(rest, path.len()),
            [b'*', rest @ ..] => {
                any(rest, path.iter().position(|b| *b == b'/').unwrap_or(path.len()))
            }
            [first, rest @ ..] => path.first() == Some(first) && is_defined(rest, &path[1..]),
        }
    }

    proptest! {
        #[test]
        fn it_matches_as_defined(text in "[ab/*]{1,10}", path in "[ab/]{0,10}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                let defined = is_defined(text.as_bytes(), path.as_bytes());
                prop_assert_eq!(pattern.matches(&path), defined);
            }
        }
    }
}
