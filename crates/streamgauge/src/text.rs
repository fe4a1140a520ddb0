//! Documents for people, on standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::selfwatch::Generator;
use crate::summary::{Distribution, Viewers};
use crate::viewers;

/// One document, for programs.
pub(crate) fn json(document: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)
}

/// What `viewers` found.
pub(crate) fn viewers(document: &viewers::Document) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let asked = u64::from(document.batches) * u64::from(document.batch_size);
    writeln!(out, "{} over {}", document.url, document.protocol)?;
    if document.interrupted {
        writeln!(out, "interrupted after {:.1} s", document.elapsed)?;
    }
    let verdict = if document.passed { "" } else { "  FAILED" };
    writeln!(
        out,
        "viewers      {} of {asked} got at least {:.1} s of media{verdict}",
        document.viewers.satisfied, document.wanted
    )?;
    write_viewers(&mut out, &document.viewers)?;
    write_generator(&mut out, &document.generator)
}

fn write_viewers(out: &mut impl Write, viewers: &Viewers) -> io::Result<()> {
    row(out, "start-up", viewers.startup, "s")?;
    row(out, "received", viewers.received, "s")?;
    row(out, "bit rate", viewers.bit_rate, "Mbit/s")?;
    row(out, "delivery", viewers.delivery, "s")?;
    row(out, "behind live", viewers.behind_live, "s")?;
    row(out, "lateness", viewers.late, "s")?;
    writeln!(
        out,
        "stalls       {} of {} viewers, {:.2} s in all",
        viewers.stalls, viewers.stalled, viewers.stall_seconds
    )?;
    writeln!(
        out,
        "bytes        {} of media, {} of overhead, {} requests",
        viewers.media_bytes, viewers.overhead_bytes, viewers.requests
    )?;
    if viewers.verified_samples > 0 {
        writeln!(
            out,
            "verified     {} access units, {} found in the reference, {} missing",
            viewers.verified_samples, viewers.matched, viewers.missing
        )?;
    }
    for (kind, count) in &viewers.errors {
        writeln!(out, "error        {kind}: {count} viewers")?;
    }
    for (kind, count) in &viewers.troubles {
        writeln!(out, "trouble      {kind}: {count} times")?;
    }
    for example in &viewers.examples {
        writeln!(out, "             {example}")?;
    }
    Ok(())
}

fn row(out: &mut impl Write, name: &str, of: Option<Distribution>, unit: &str) -> io::Result<()> {
    let Some(of) = of else { return Ok(()) };
    writeln!(
        out,
        "{name:<12} mean {:.3}  median {:.3}  90 % {:.3}  99 % {:.3}  max {:.3} {unit}",
        of.mean, of.p50, of.p90, of.p99, of.max
    )
}

fn write_generator(out: &mut impl Write, generator: &Generator) -> io::Result<()> {
    let busiest = generator.loops.iter().map(|each| each.cpu_share).fold(0.0, f64::max);
    let lag = generator.loops.iter().map(|each| each.lag_p99).fold(0.0, f64::max);
    writeln!(
        out,
        "generator    {} loops, at most {:.0} % of a core, lag {:.1} ms (99 %)",
        generator.loops.len(),
        busiest * 100.0,
        lag * 1000.0
    )?;
    for reason in &generator.reasons {
        writeln!(out, "SATURATED    {reason}: the figures are not to be trusted")?;
    }
    Ok(())
}
