//! Programs that make loads: computes from their arguments how long they take, and reads the output
//! of foreign programs.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;

use super::scenario::Tool;
use crate::{percentile, units};

/// About how long a load takes whose arguments do not tell.
const UNKNOWN: Duration = Duration::from_secs(10);
/// How much longer than expected a load may take.
const GRACE: Duration = Duration::from_secs(30);
/// How much longer it may take if the expectation is a guess.
const GRACE_OF_GUESS: Duration = Duration::from_secs(300);

impl Tool {
    /// About how long a load with these arguments takes; a guess if the arguments do not tell.
    pub fn expected(self, arguments: &[String]) -> Duration {
        self.length(arguments).unwrap_or(UNKNOWN)
    }

    /// How long a load with these arguments takes; `None` if the arguments do not tell.
    fn length(self, arguments: &[String]) -> Option<Duration> {
        let options = Options(arguments);
        match self {
            Self::Viewers => {
                let batches = options.number("--batches").unwrap_or(1.0).max(1.0);
                let interval = options.time("--interval").unwrap_or(Duration::from_secs(1));
                let duration = options.time("--duration")?;
                Some(duration.saturating_add(multiplied(interval, batches - 1.0)))
            }
            Self::Capacity => {
                let duration = options.time("--duration").unwrap_or(Duration::from_secs(10));
                let pause = options.time("--pause").unwrap_or(Duration::from_secs(1));
                Some(multiplied(duration.saturating_add(pause), options.steps()))
            }
            Self::Http => {
                let duration = options.time("--duration").or_else(|| options.time("-d"));
                let requests = options.number("--requests").or_else(|| options.number("-n"));
                match (duration, requests, options.number("--rate")) {
                    (Some(duration), _, _) => Some(duration),
                    (None, Some(requests), Some(rate)) => Some(seconds(requests / rate)),
                    (None, Some(_), None) => None,
                    (None, None, _) => Some(Duration::from_secs(10)),
                }
            }
            Self::Ab => options.number("-t").map(seconds),
            Self::Wrk => {
                let given = options.time("-d").or_else(|| options.time("--duration"));
                Some(given.unwrap_or(Duration::from_secs(10)))
            }
            Self::Vegeta => options.time("-duration"),
            Self::Httperf => None,
        }
    }

    /// The longest time that a load with these arguments may take.
    pub fn limit(self, arguments: &[String]) -> Duration {
        match self.length(arguments) {
            Some(length) => length.saturating_add(self.waits(arguments)).saturating_add(GRACE),
            None => UNKNOWN + GRACE_OF_GUESS,
        }
    }

    /// How long a load with `--start-barrier` may wait until the last viewers have connected: in each step up to three
    /// times `--timeout`.
    fn waits(self, arguments: &[String]) -> Duration {
        let options = Options(arguments);
        let steps = match self {
            Self::Viewers => 1.0,
            Self::Capacity => options.steps(),
            _ => return Duration::ZERO,
        };
        if !arguments.iter().any(|argument| argument == "--start-barrier") {
            return Duration::ZERO;
        }
        multiplied(options.time("--timeout").unwrap_or(Duration::from_secs(10)), 3.0 * steps)
    }

    /// Reads the output of a foreign program as metrics (see [`metrics`](super::metrics)).
    ///
    /// # Errors
    /// A figure is missing in the output.
    pub fn parse(self, text: &str, arguments: &[String]) -> anyhow::Result<BTreeMap<String, f64>> {
        let options = Options(arguments);
        let clients = match self {
            Self::Ab | Self::Wrk => options.number("-c"),
            Self::Httperf => options.number("--num-conns"),
            _ => None,
        };
        let metrics = match self {
            Self::Ab => ab(text),
            Self::Httperf => httperf(text),
            Self::Wrk => wrk(text),
            Self::Vegeta => vegeta(text),
            Self::Viewers | Self::Http | Self::Capacity => None,
        };
        let Some(metrics) = metrics else { bail!("{} did not print its figures", self.name()) };
        let answers =
            metrics.iter().find(|(name, _)| *name == "responses").map(|(_, count)| *count);
        let is_told = |(name, _): &(&str, f64)| {
            let quantile = percentile::stated(name.trim_end_matches("_ms"));
            quantile.is_none_or(|quantile| {
                percentile::has(answers.unwrap_or_default() as u64, quantile)
            })
        };
        let metrics = metrics.into_iter().filter(is_told);
        let named = |(name, value): (&str, f64)| (name.to_owned(), value);
        Ok(metrics.chain(clients.map(|n| ("clients", n))).map(named).collect())
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(UNKNOWN)
}

fn multiplied(time: Duration, times: f64) -> Duration {
    seconds(time.as_secs_f64() * times)
}

/// The options of a command: `--name VALUE`, `--name=VALUE`, `-nVALUE`.
struct Options<'a>(&'a [String]);

impl Options<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        let of = |(at, argument): (usize, &String)| {
            let rest = argument.strip_prefix(name)?;
            if rest.is_empty() {
                return self.0.get(at + 1).map(String::as_str);
            }
            let joined = name.len() == 2 && !name.starts_with("--");
            rest.strip_prefix('=').or(joined.then_some(rest)).map(|rest| {
                let start = argument.len() - rest.len();
                self.0[at].split_at(start).1
            })
        };
        self.0.iter().enumerate().find_map(of)
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// How many steps `capacity` has at most.
    fn steps(&self) -> f64 {
        let first = self.number("--start").unwrap_or(100.0);
        let last = self.number("--max").unwrap_or(2000.0);
        let step = self.number("--step").unwrap_or(100.0).max(1.0);
        // If no bit rate is given, the first step is a viewer alone.
        let alone = if self.text("--min-bitrate").is_some() { 0.0 } else { 1.0 };
        ((last - first) / step).max(0.0).floor() + 1.0 + alone
    }

    fn time(&self, name: &str) -> Option<Duration> {
        let text = self.text(name)?;
        // Plain numbers of wrk and ab are seconds.
        units::time(text).ok().or_else(|| text.parse().ok().map(seconds))
    }
}

type Metrics = Vec<(&'static str, f64)>;

/// The first number after `label`, which begins a line.
fn labelled(text: &str, label: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(label))?;
    first_number(line)
}

fn first_number(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    text.get(..end)?.trim_end_matches('.').parse().ok()
}

/// Apache's ab(1).
fn ab(text: &str) -> Option<Metrics> {
    let mut metrics = vec![
        ("requests_per_second", labelled(text, "Requests per second:")?),
        ("requests", labelled(text, "Complete requests:")?),
        ("responses", labelled(text, "Complete requests:")?),
        // ab's own mean: the time that connections were open, divided by the requests on each.
        ("latency_mean_ms", labelled(text, "Time per request:")?),
        ("kb_per_second", labelled(text, "Transfer rate:")?),
        // ab prints these lines only if there are such errors.
        (
            "errors",
            labelled(text, "Failed requests:").unwrap_or_default()
                + labelled(text, "Non-2xx responses:").unwrap_or_default(),
        ),
    ];
    for (label, name) in [
        ("50%", "latency_p50_ms"),
        ("90%", "latency_p90_ms"),
        ("99%", "latency_p99_ms"),
        ("100%", "latency_max_ms"),
    ] {
        metrics.extend(labelled(text, label).map(|value| (name, value)));
    }
    Some(metrics)
}

/// httperf(1).
fn httperf(text: &str) -> Option<Metrics> {
    let reply = text.lines().find_map(|line| line.strip_prefix("Reply time [ms]: response"));
    let errors = text.lines().find_map(|line| line.strip_prefix("Errors: total"));
    let mut metrics = vec![
        ("kb_per_second", labelled(text, "Net I/O:")?),
        ("errors", errors.and_then(first_number).unwrap_or_default() + httperf_refused(text)),
    ];
    let totals = text.lines().find(|line| line.starts_with("Total:"));
    let total = |word: &str| totals?.split_once(word).and_then(|(_, rest)| first_number(rest));
    metrics.extend(total("requests").map(|n| ("requests", n)));
    let (replies, seconds) = (total("replies")?, total("test-duration")?);
    metrics.push(("responses", replies));
    // httperf's own rate is that of its requests, answered or not.
    metrics.push(("requests_per_second", if seconds > 0.0 { replies / seconds } else { 0.0 }));
    metrics.extend(reply.and_then(first_number).map(|n| ("latency_mean_ms", n)));
    Some(metrics)
}

/// The replies that refuse a request, of httperf's `Reply status: 1xx=0 2xx=9 3xx=0 4xx=1 5xx=0`.
fn httperf_refused(text: &str) -> f64 {
    let statuses = text.lines().find_map(|line| line.strip_prefix("Reply status:"));
    let words = statuses.unwrap_or_default().split_whitespace();
    let refused = words.filter_map(|word| word.strip_prefix("4xx=").or(word.strip_prefix("5xx=")));
    refused.filter_map(first_number).sum()
}

/// wrk(1), with `--latency` for the percentiles.
fn wrk(text: &str) -> Option<Metrics> {
    let mut metrics = vec![("requests_per_second", labelled(text, "Requests/sec:")?)];
    let transfer = text.lines().find_map(|line| line.trim().strip_prefix("Transfer/sec:"));
    if let Some(bytes) = transfer.and_then(|text| units::size(&binary(text.trim())).ok()) {
        metrics.push(("mib_per_second", bytes as f64 / 1_048_576.0));
        metrics.push(("kb_per_second", bytes as f64 / 1024.0));
    }
    let total = text.lines().find(|line| line.contains(" requests in "));
    let count = total.and_then(first_number);
    metrics.extend(count.into_iter().flat_map(|n| [("requests", n), ("responses", n)]));
    let time = |text: &str| units::time(text).ok().map(|time| time.as_secs_f64() * 1e3);
    let latency = text.lines().find_map(|line| line.trim().strip_prefix("Latency "));
    let mut words = latency.unwrap_or_default().split_whitespace();
    metrics.extend(words.next().and_then(time).map(|ms| ("latency_mean_ms", ms)));
    metrics.extend(words.nth(1).and_then(time).map(|ms| ("latency_max_ms", ms)));
    for (label, name) in
        [("50%", "latency_p50_ms"), ("90%", "latency_p90_ms"), ("99%", "latency_p99_ms")]
    {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(label));
        metrics.extend(value.and_then(|text| time(text.trim())).map(|ms| (name, ms)));
    }
    let errors = text.lines().find_map(|line| line.trim().strip_prefix("Socket errors:"));
    let each = errors.unwrap_or_default().split(',').filter_map(first_number);
    let statuses = labelled(text, "Non-2xx or 3xx responses:").unwrap_or_default();
    metrics.push(("errors", each.sum::<f64>() + statuses));
    Some(metrics)
}

/// Writes wrk's units so that a KB is 1,024 bytes and a MB 1,024 KB.
fn binary(text: &str) -> String {
    match text.strip_suffix('B') {
        Some(rest) if rest.ends_with(['K', 'M', 'G']) => format!("{rest}iB"),
        _ => text.to_owned(),
    }
}

/// `vegeta attack | vegeta report -type=json`, or lines of text with that report among them.
fn vegeta(text: &str) -> Option<Metrics> {
    let report: serde_json::Value = text.lines().find_map(|line| {
        serde_json::from_str(line.trim()).ok().filter(serde_json::Value::is_object)
    })?;
    let number = |pointer: &str| report.pointer(pointer).and_then(serde_json::Value::as_f64);
    let requests = number("/requests")?;
    let mut metrics = vec![
        ("requests", requests),
        ("responses", (requests * number("/success")?).round()),
        ("requests_per_second", number("/throughput")?),
        ("errors", (requests * (1.0 - number("/success")?)).round()),
    ];
    for (pointer, name) in [
        ("/latencies/mean", "latency_mean_ms"),
        ("/latencies/50th", "latency_p50_ms"),
        ("/latencies/90th", "latency_p90_ms"),
        ("/latencies/99th", "latency_p99_ms"),
        ("/latencies/max", "latency_max_ms"),
    ] {
        metrics.extend(number(pointer).map(|nanoseconds| (name, nanoseconds / 1e6)));
    }
    Some(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_length(tool: Tool, arguments: &str, seconds: f64) {
        let arguments: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
        assert_eq!(tool.expected(&arguments), Duration::from_secs_f64(seconds), "{arguments:?}");
    }

    #[test]
    fn arguments_say_how_long_a_load_takes() {
        assert_length(Tool::Viewers, "u --batches 3 --interval 500ms --duration 1m", 61.0);
        assert_length(Tool::Viewers, "u --duration=4s", 4.0);
        assert_length(Tool::Http, "u --rate 50 --requests 100", 2.0);
        assert_length(Tool::Http, "u -d 3s", 3.0);
        assert_length(Tool::Capacity, "u --start 1 --max 2 --step 1 --duration 4s", 15.0);
        assert_length(Tool::Capacity, "u --start 9 --max 9 --min-bitrate 1k --duration 4s", 5.0);
        assert_length(Tool::Wrk, "-t1 -d2s u", 2.0);
        assert_length(Tool::Vegeta, "-duration=5s", 5.0);
        assert_eq!(Tool::Ab.limit(&["-n".to_owned(), "100".to_owned()]).as_secs(), 310);
        let given = ["u", "--duration", "10s"].map(str::to_owned);
        assert_eq!(Tool::Http.limit(&given).as_secs(), 40);
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let barrier = "u --start 1 --max 2 --step 1 --min-bitrate 1k --duration 4s --start-barrier";
        assert_eq!(Tool::Capacity.limit(&words(barrier)).as_secs(), 2 * 5 + 2 * 30 + 30);
        let viewers = "u --duration 4s --timeout 2s --start-barrier";
        assert_eq!(Tool::Viewers.limit(&words(viewers)).as_secs(), 4 + 6 + 30);
    }

    /// The output in httperf's manual. httperf is in no package that tests need.
    #[test]
    fn output_of_httperf_is_read() {
        let text = "Total: connections 3000 requests 3000 replies 2999 test-duration 0.420 s\n\n\
                    Request rate: 7141.8 req/s (0.1 ms/req)\n\
                    Reply time [ms]: response 0.1 transfer 0.0\n\
                    Reply status: 1xx=0 2xx=2990 3xx=0 4xx=2 5xx=7\n\
                    Net I/O: 2141.1 KB/s (17.5*10^6 bps)\n\n\
                    Errors: total 1 client-timo 1 socket-timo 0\n";
        let metrics = Tool::Httperf.parse(text, &["--num-conns=3000".to_owned()]).unwrap();
        for (name, value) in [
            ("requests_per_second", 2999.0 / 0.42),
            ("kb_per_second", 2141.1),
            ("errors", 10.0),
            ("requests", 3000.0),
            ("responses", 2999.0),
            ("latency_mean_ms", 0.1),
            ("clients", 3000.0),
        ] {
            assert_eq!(metrics[name], value, "{name}");
        }
    }
}
