//! Measures what reaches the origin while viewers are served: requests, bytes and processor time,
//! if a server has a page of metrics. With a cache in front of the origin, the figures show how
//! well the cache works; without one, everything reaches the origin.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, ensure};

use super::metrics::Through;
use super::process::Server;
use super::ready::inside;
use crate::meter::{Meter, Options};

/// How long a server may take to send its page of metrics.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest page of metrics, in bytes.
const LONGEST: u64 = 1 << 20;

/// The counters of a peer's page of metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counted {
    requests: f64,
    bytes: f64,
}

/// Measures from the start of the load to its end.
#[derive(Debug)]
pub(super) struct Span {
    counted: Option<Counted>,
    /// For an origin in another process than the server: its meter, and the processor time at the
    /// start.
    meter: Option<(Meter, BTreeMap<i32, f64>)>,
}

impl Span {
    /// Starts measuring a running server.
    ///
    /// # Errors
    /// Its page of metrics is missing or lacks a metric that the peer's file names, or /proc cannot
    /// be read.
    pub(super) fn begin(server: &Server) -> anyhow::Result<Self> {
        let meter = server.origin().map(|origin| -> anyhow::Result<_> {
            let pids = vec![i32::try_from(origin.pid())?];
            let mut meter = Meter::start(&Options { pids, with_children: true, network_of: None })?;
            let used = used(&mut meter)?;
            Ok((meter, used))
        });
        Ok(Self { meter: meter.transpose()?, counted: counted(server)? })
    }

    /// Ends measuring; returns what reached the origin in the meantime.
    ///
    /// # Errors
    /// Those of [`Span::begin`].
    pub(super) fn end(self, server: &Server) -> anyhow::Result<Through> {
        let mut through = Through { cached: server.origin().is_some(), ..Through::default() };
        if let Some((before, after)) = self.counted.zip(counted(server)?) {
            through.requests = Some(after.requests - before.requests);
            through.bytes = Some(after.bytes - before.bytes);
        }
        if let Some((mut meter, before)) = self.meter {
            let since = |(pid, at_end): (i32, f64)| {
                (at_end - before.get(&pid).copied().unwrap_or_default()).max(0.0)
            };
            through.cpu = Some(used(&mut meter)?.into_iter().map(since).sum());
        }
        Ok(through)
    }
}

/// Processor time of each process, in seconds.
fn used(meter: &mut Meter) -> anyhow::Result<BTreeMap<i32, f64>> {
    let processes = meter.sample()?.processes;
    Ok(processes.into_iter().map(|usage| (usage.pid, usage.cpu_user + usage.cpu_system)).collect())
}

/// The counters of the origin, which is the server itself if there is no origin behind it.
fn counted(server: &Server) -> anyhow::Result<Option<Counted>> {
    let origin = server.origin().unwrap_or(server);
    let Some(page) = origin.counters()? else { return Ok(None) };
    let named = || format!("{}: counters: {}", origin.peer().name, page.url);
    let text = inside(origin.netns(), || get(&page.url)).with_context(named)?;
    let of =
        |name: &str| sum(&text, name).with_context(|| format!("{}: there is no {name}", named()));
    Ok(Some(Counted { requests: of(&page.requests)?, bytes: of(&page.bytes)? }))
}

/// Gets the body of an `http://` URL that has a port.
fn get(url: &str) -> anyhow::Result<String> {
    let rest = url.strip_prefix("http://").context("not http://…")?;
    let (address, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let first = address.to_socket_addrs()?.next().context("no address")?;
    let mut connection = TcpStream::connect_timeout(&first, PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0, so that the answer ends with its connection and has no chunks.
    let head = format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    connection.write_all(head.as_bytes())?;
    let mut answer = Vec::new();
    connection.take(LONGEST).read_to_end(&mut answer)?;
    let answer = String::from_utf8(answer).context("not text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no whole answer")?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    ensure!(status == "200", "status {status}");
    Ok(body.to_owned())
}

/// The sum of a metric's series in Prometheus' text format; `None` if there are none.
fn sum(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let rest = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit_once('}')?.1,
            None => rest,
        };
        rest.strip_prefix(' ')?.split(' ').next()?.parse::<f64>().ok().filter(|n| n.is_finite())
    };
    text.lines().filter_map(value).fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_a_metric_are_added_up() {
        let text = "# HELP a_total What.\n# TYPE a_total counter\na_total 3\na_total_more 9\n\
                    b_total{x=\"1 } 2\"} 4.5 1700000000\nb_total{x=\"2\"} 1\nc_total NaN\n# EOF\n";
        assert_eq!(sum(text, "a_total"), Some(3.0));
        assert_eq!(sum(text, "b_total"), Some(5.5));
        assert_eq!(sum(text, "c_total"), None);
        assert_eq!(sum(text, "d_total"), None);
    }
}
