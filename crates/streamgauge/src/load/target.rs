//! What is asked for: targets, their ranges, and which of them the n-th request is.
//!
//! Everything is a function of a request's number, so a run asks for the same bytes however many
//! workers carry it out, and a second run with the same seed asks for the same again.

use serde::{Deserialize, Serialize};

use super::url::{self, Url};

/// The longest line of a file of targets, in bytes.
const LONGEST_LINE: usize = 16 << 10;
/// The most targets of a run; they are kept in memory, once for each worker.
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
    /// How many bytes.
    pub fn length(self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

/// One thing to ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// GET, HEAD or another method without a body.
    pub method: String,
    /// Where.
    pub url: Url,
    /// Which bytes of it, if not all.
    pub range: Option<ByteRange>,
    /// The length of the whole in bytes, where a rule divides it into ranges.
    pub length: Option<u64>,
}

impl Target {
    /// All of a URL, by GET.
    pub fn get(url: Url) -> Self {
        Self { method: "GET".to_owned(), url, range: None, length: None }
    }

    /// Whether it may be asked for again when a kept connection was closed under it, without the
    /// server being asked twice for what counts once (RFC 9110, 9.2.2).
    pub fn is_idempotent(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE")
    }
}

/// A line that names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BadLine {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Reads targets, one a line: `[METHOD] URL [RANGE]`, where RANGE is `FIRST-LAST` in bytes, with
/// or without `bytes=` before it. Empty lines and those that begin with `#` are passed over.
///
/// # Errors
/// [`BadLine`] for the first that is wrong, and for more than a million.
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

/// In which order a rule's ranges come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub enum Order {
    /// Anywhere in the file, each position as likely.
    Random,
    /// One after the other, from the start again at the end.
    Sequential,
}

/// Ranges of one size over the whole of each target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Bytes in a range; a file's last range by [`Order::Sequential`] may be shorter.
    pub size: u64,
    /// In which order.
    pub order: Order,
    /// Where [`Order::Random`] starts from: the same seed, the same ranges.
    pub seed: u64,
}

impl Rule {
    /// The range that request `number` of the run asks for, if it is the `turn`-th of its target,
    /// of `length` bytes.
    fn range(self, number: u64, turn: u64, length: u64) -> Option<ByteRange> {
        let size = self.size.min(length);
        if size == 0 {
            return None;
        }
        let first = match self.order {
            Order::Random => {
                let places = length - size + 1;
                // The high half of the product: uniform but for a bias below places / 2^64.
                let random = u128::from(mix(self.seed.wrapping_add(mix(number))));
                ((random * u128::from(places)) >> 64) as u64
            }
            Order::Sequential => {
                let ranges = length.div_ceil(size);
                turn % ranges * size
            }
        };
        Some(ByteRange { first, last: (first + size - 1).min(length - 1) })
    }
}

/// SplitMix64: each bit of the result depends on every bit of the input.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What request `number` of the run asks for: the place of its target, of which there must be one,
/// and the range.
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

    /// Range of each request of a run of two targets, both of `length` bytes.
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
        // Every other request is for the second target.
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
        // The mean of 2,000 uniform draws has a standard deviation of 6,450.
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
