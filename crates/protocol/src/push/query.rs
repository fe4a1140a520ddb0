//! The query parameters in a viewer's request.

use std::time::Duration;

/// Where a viewer's media begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum From {
    /// At the newest keyframe of a live stream; at the beginning of a file.
    #[default]
    Live,
    /// At the oldest media that exist.
    Start,
    /// At the keyframe at or before a time on the stream's timeline.
    At(Duration),
}

/// How much media one message contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// A chunk, sent as soon as it exists.
    #[default]
    Chunk,
    /// A segment, sent once it is complete.
    Segment,
}

/// How fast a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it plays.
    Realtime,
    /// As fast as the link takes it.
    Fast,
}

/// The query of `/STREAM/push`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// `from=live|start|SECONDS`
    pub from: From,
    /// `max=BITRATE`: bits per second that no rendition may exceed.
    pub max: Option<u64>,
    /// `rendition=NAME`: only this rendition.
    pub rendition: Option<String>,
    /// `pace=realtime|fast`
    pub pace: Option<Pace>,
    /// `latency=chunk|segment`
    pub latency: Unit,
    /// `alive=1`: tell of each ping by an event, because browsers show pages no pings.
    pub alive: bool,
}

/// A parameter has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} has to be {expected}")]
pub struct BadQuery {
    /// Name of the parameter.
    pub name: &'static str,
    /// Its allowed values.
    pub expected: &'static str,
}

impl Query {
    /// Reads the pairs of a query. Unknown parameters are ignored.
    ///
    /// # Errors
    /// A parameter has an invalid value.
    pub fn parse<K: AsRef<str>, V: AsRef<str>>(
        pairs: impl Iterator<Item = (K, V)>,
    ) -> Result<Self, BadQuery> {
        let mut query = Self::default();
        for (name, value) in pairs {
            let value = value.as_ref();
            match name.as_ref() {
                "from" => {
                    let expected = "live, start or seconds";
                    query.from = from(value).ok_or(BadQuery { name: "from", expected })?;
                }
                "max" => {
                    let expected = "bits per second: 800000, 800k or 1.5M";
                    query.max = Some(bitrate(value).ok_or(BadQuery { name: "max", expected })?);
                }
                "rendition" => query.rendition = Some(value.to_owned()),
                "alive" => query.alive = value == "1",
                "pace" => {
                    query.pace = Some(match value {
                        "realtime" => Pace::Realtime,
                        "fast" => Pace::Fast,
                        _ => return Err(BadQuery { name: "pace", expected: "realtime or fast" }),
                    });
                }
                "latency" => {
                    query.latency = match value {
                        "chunk" => Unit::Chunk,
                        "segment" => Unit::Segment,
                        _ => {
                            return Err(BadQuery { name: "latency", expected: "chunk or segment" });
                        }
                    };
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

fn from(value: &str) -> Option<From> {
    match value {
        "live" => Some(From::Live),
        "start" => Some(From::Start),
        seconds => Duration::try_from_secs_f64(seconds.parse().ok()?).ok().map(From::At),
    }
}

fn bitrate(value: &str) -> Option<u64> {
    let (number, unit) = match value.strip_suffix(['k', 'M']) {
        Some(number) if value.ends_with('k') => (number, 1e3),
        Some(number) => (number, 1e6),
        None => (value, 1.0),
    };
    let rate = number.parse::<f64>().ok()? * unit;
    // No link carries more, so a larger number cannot be a meaningful limit.
    (1.0..=1e15).contains(&rate).then_some(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Query, BadQuery> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query::parse(pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))))
    }

    #[test]
    fn queries_are_read() {
        assert_eq!(parse(""), Ok(Query::default()));
        let from = |text: &str| parse(text).unwrap().from;
        assert_eq!(from("from=start"), From::Start);
        assert_eq!(from("from=12.5"), From::At(Duration::from_millis(12_500)));
        assert_eq!(parse("max=800000").unwrap().max, Some(800_000));
        assert_eq!(parse("max=1.5M").unwrap().max, Some(1_500_000));
        assert_eq!(parse("max=64k").unwrap().max, Some(64_000));
        let alive = |text: &str| parse(text).unwrap().alive;
        assert_eq!([alive(""), alive("alive=0"), alive("alive=1")], [false, false, true]);
        let all = parse("rendition=v1&latency=segment&pace=fast&from=live&x=y").unwrap();
        assert_eq!(all.rendition.as_deref(), Some("v1"));
        assert_eq!((all.latency, all.pace), (Unit::Segment, Some(Pace::Fast)));
    }

    #[test]
    fn bad_values_are_refused() {
        for text in [
            "from=",
            "from=soon",
            "from=-1",
            "from=NaN",
            "from=inf",
            "from=1e30",
            "max=",
            "max=0",
            "max=-1",
            "max=k",
            "max=1G",
            "max=NaN",
            "max=inf",
            "pace=slow",
            "latency=frame",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
