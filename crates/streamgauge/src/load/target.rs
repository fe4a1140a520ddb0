//! Targets, their ranges, and which of them the n-th request asks for.
//!
//! All of this depends only on the number of the request. So a run asks for the same bytes with any
//! number of workers, and a second run with the same seed asks for the same bytes again.

use serde::{Deserialize, Serialize};

use super::url::{self, Url};
use crate::random::{below, mix};

/// The longest line in a file of targets, in bytes.
const LONGEST_LINE: usize = 16 << 10;
/// The most targets of a run. Each worker keeps all of them in memory.
const MOST_TARGETS: usize = 1_000_000;

/// Bytes `first` to `last` of a representation, both included (RFC 9110, 14.1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// Position of the first byte.
    pub first: u64,
    /// Position of the last byte.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes.
    pub fn length(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// A target of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// GET, HEAD or another method without a body.
    pub method: String,
    /// The URL.
    pub url: Url,
    /// The bytes to ask for; `None` for all.
    pub range: Option<ByteRange>,
    /// Length of the whole in bytes, if a rule divides it into ranges.
    pub length: Option<u64>,
}

impl Target {
    /// Makes a target for all of a URL, by GET.
    pub fn get(url: Url) -> Self {
        Self { method: "GET".to_owned(), url, range: None, length: None }
    }

    /// Whether a request for it may be sent again after the server closed a kept connection. The
    /// second request must have no further effect on the server (RFC 9110, 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE")
    }
}

/// A line that is no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// Line number from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads targets, one on each line: `[METHOD] URL [RANGE]`. RANGE is `FIRST-LAST` in bytes, with or
/// without `bytes=` before it. Empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// [`BadLine`] for the first wrong line, and for more than a million targets.
pub fn parse(text: &str) -> Result<Vec<Target>, BadLine> {
    let mut targets = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let bad = |reason: String| BadLine { line: number, reason };
        if line.len() > LONGEST_LINE {
            return Err(bad(format!("longer than {LONGEST_LINE} bytes")));
        }
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if targets.len() == MOST_TARGETS {
            return Err(bad(format!("more than {MOST_TARGETS} targets")));
        }
        targets.push(parse_line(line).map_err(bad)?);
    }
    Ok(targets)
}

fn parse_line(line: &str) -> Result<Target, String> {
    let mut words = line.split_ascii_whitespace().peekable();
    let method = words
        .next_if(|word| word.bytes().all(|b| b.is_ascii_uppercase()))
        .map_or_else(|| "GET".to_owned(), str::to_owned);
    if method == "CONNECT" {
        return Err("CONNECT asks for a tunnel, not for an answer".to_owned());
    }
    let url = words.next().ok_or("no URL")?;
    let url = Url::parse(url).map_err(|error: url::Invalid| error.to_string())?;
    let range = words.next().map(parse_range).transpose()?;
    match words.next() {
        Some(word) => Err(format!("{word:?} after METHOD URL RANGE")),
        None => Ok(Target { method, url, range, length: None }),
    }
}

fn parse_range(word: &str) -> Result<ByteRange, String> {
    let range = word.strip_prefix("bytes=").unwrap_or(word);
    let number = |digits: &str| {
        let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok()).flatten()
    };
    range
        .split_once('-')
        .and_then(|(first, last)| Some(ByteRange { first: number(first)?, last: number(last)? }))
        .filter(|range| range.first <= range.last)
        .ok_or_else(|| format!("{word:?} is not a range such as 0-65535"))
}

/// Order of the ranges of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Order {
    /// Anywhere in the file; all positions are equally likely.
    Random,
    /// One after the other; after the end, from the start again.
    Sequential,
}

/// Ranges of one size from the whole of each target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Size of a range in bytes. The last range of a file may be shorter with
    /// [`Order::Sequential`].
    pub size: u64,
    /// The order.
    pub order: Order,
    /// Seed for [`Order::Random`]. The same seed gives the same ranges.
    pub seed: u64,
}

impl Rule {
    /// The range for request `number` of the run, which is the `turn`-th for this target. `length`
    /// is that of the target in bytes.
    fn range(self, number: u64, turn: u64, length: u64) -> Option<ByteRange> {
        let size = self.size.min(length);
        if size == 0 {
            return None;
        }
        let first = match self.order {
            Order::Random => {
                let places = length - size + 1;
                below(mix(self.seed.wrapping_add(mix(number))), places)
            }
            Order::Sequential => {
                let ranges = length.div_ceil(size);
                turn % ranges * size
            }
        };
        Some(ByteRange { first, last: (first + size - 1).min(length - 1) })
    }
}

/// Returns the index of the target for request `number` of the run, and the range. There must be at
/// least one target.
pub fn of_request(
    targets: &[Target],
    rule: Option<Rule>,
    number: u64,
) -> (usize, Option<ByteRange>) {
    let count = targets.len() as u64;
    let place = (number % count) as usize;
    let target = &targets[place];
    let by_rule = rule.zip(target.length);
    let by_rule = by_rule.and_then(|(rule, length)| rule.range(number, number / count, length));
    (place, target.range.or(by_rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_names_methods_urls_and_ranges() {
        let text = "# what study A asked for\n\n\
                    http://h/a\n  HEAD http://h/b  \r\n\
                    GET http://h/c 0-99\nhttp://h/d bytes=100-100\n";
        let targets = parse(text).unwrap();
        let found: Vec<_> = targets
            .iter()
            .map(|t| {
                (t.method.as_str(), t.url.path.as_str(), t.range.map(|r| (r.first, r.length())))
            })
            .collect();
        assert_eq!(
            found,
            [
                ("GET", "/a", None),
                ("HEAD", "/b", None),
                ("GET", "/c", Some((0, 100))),
                ("GET", "/d", Some((100, 1)))
            ]
        );
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, reason) in [
            ("GET", "no URL"),
            ("http://h/ 5-4", "\"5-4\" is not a range such as 0-65535"),
            ("http://h/ -5", "\"-5\" is not a range such as 0-65535"),
            ("http://h/ 5-", "\"5-\" is not a range such as 0-65535"),
            ("http://h/ +1-5", "\"+1-5\" is not a range such as 0-65535"),
            ("http://h/ 0-99999999999999999999", "is not a range"),
            ("http://h/ 0-1 x", "\"x\" after METHOD URL RANGE"),
            ("get http://h/", "no http:// or https:// before it"),
            ("CONNECT http://h/", "CONNECT asks for a tunnel"),
        ] {
            let error = parse(&format!("http://h/\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 2);
            assert!(error.reason.contains(reason), "{line}: {}", error.reason);
        }
        assert!(parse(&"x".repeat(20_000)).unwrap_err().reason.contains("longer than"));
    }

    /// The ranges of the requests of a run with two targets, both of `length` bytes.
    fn ranges(
        length: u64,
        size: u64,
        order: Order,
        seed: u64,
    ) -> impl Fn(u64) -> Option<ByteRange> {
        let mut target = Target::get(Url::parse("http://h/").unwrap());
        target.length = Some(length);
        let targets = [target.clone(), target];
        move |number| {
            let rule = Rule { size, order, seed };
            let (place, range) = of_request(&targets, Some(rule), number);
            assert_eq!(place as u64, number % 2);
            range
        }
    }

    #[test]
    fn sequential_ranges_cover_a_file_without_overlap() {
        let range = ranges(1000, 300, Order::Sequential, 0);
        // Every second request is for the second target.
        let found: Vec<_> =
            (0..10).step_by(2).filter_map(range).map(|r| (r.first, r.last)).collect();
        assert_eq!(found, [(0, 299), (300, 599), (600, 899), (900, 999), (0, 299)]);
    }

    #[test]
    fn random_ranges_are_within_the_file_spread_over_it_and_come_again() {
        let (length, size) = (1_000_000, 1000);
        let range = ranges(length, size, Order::Random, 1);
        let found: Vec<_> = (0..2000).filter_map(&range).collect();
        assert!(found.iter().all(|r| r.length() == size && r.last < length));
        let mean = found.iter().map(|r| r.first).sum::<u64>() / 2000;
        // The mean of 2,000 uniform values has a standard deviation of 6,450.
        assert!(mean.abs_diff(499_500) < 40_000, "{mean}");
        let again = ranges(length, size, Order::Random, 1);
        assert!((0..2000).all(|n| again(n) == range(n)));
        let other = ranges(length, size, Order::Random, 2);
        assert!((0..10).any(|n| other(n) != range(n)));
    }

    #[test]
    fn a_range_longer_than_the_file_is_the_file_and_an_empty_file_has_none() {
        for order in [Order::Random, Order::Sequential] {
            let range = ranges(10, 100, order, 0)(7).unwrap();
            assert_eq!((range.first, range.last), (0, 9));
            assert_eq!(ranges(0, 100, order, 0)(7), None);
        }
    }
}
