//! Prints documents on standard output.

use std::io::{self, Write};

use serde::Serialize;
use viewer::{Report, Rtp};

use crate::selfwatch::Generator;
use crate::summary::{Distribution, Viewers};
use crate::{capacity, percentile, viewers, watch};

/// Prints a document as JSON, for programs.
pub(crate) fn json(document: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, document)?;
    writeln!(out)
}

/// Prints the results of `viewers`.
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
    if document.lost > 0 {
        writeln!(out, "lost         {} viewers whose result is not known", document.lost)?;
    }
    write_viewers(&mut out, &document.viewers)?;
    document.agents.iter().try_for_each(|agent| agent.write(&mut out))?;
    write_generator(&mut out, &document.generator)
}

/// Prints the results of `watch`.
pub(crate) fn watch(document: &watch::Document) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{} over {}", document.url, document.protocol)?;
    if let Some(report) = &document.viewer {
        write_report(&mut out, report)?;
    }
    writeln!(out, "{}", if document.passed { "whole" } else { "FAILED" })?;
    write_generator(&mut out, &document.generator)
}

fn write_report(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let time = |at: Option<f64>| at.map_or("never".to_owned(), |at| format!("{at:.3} s"));
    writeln!(out, "watched      {:.3} s", report.watched)?;
    writeln!(
        out,
        "start-up     {} (first byte of media {})",
        time(report.startup),
        time(report.first_media)
    )?;
    for (name, track) in [("video", &report.video), ("audio", &report.audio)] {
        if let Some(track) = track {
            writeln!(
                out,
                "{name:<12} {:.3} s, from {:.3} to {:.3}",
                track.received, track.from, track.to
            )?;
        }
    }
    writeln!(out, "stalls       {}, {:.3} s in all", report.stalls, report.stalled)?;
    writeln!(
        out,
        "holes        {}, {:.3} s in all, {:.3} s at most",
        report.holes, report.missing, report.longest_hole
    )?;
    for (name, latency) in [
        ("delivery", &report.delivery),
        ("behind live", &report.behind_live),
        ("lateness", &report.late),
        ("audio-video", &report.audio_video),
    ] {
        if let Some(latency) = latency {
            writeln!(
                out,
                "{name:<12} least {:.3}  mean {:.3}  most {:.3} s",
                latency.min, latency.mean, latency.max
            )?;
        }
    }
    if let (Some(half), Some(nearly_all)) = (report.delivery_p50, report.delivery_p99) {
        writeln!(out, "delivered    half within {half:.3}  99 % within {nearly_all:.3} s")?;
    }
    writeln!(
        out,
        "bytes        {} of media, {} of overhead, {} requests, {} reconnects, {} switches",
        report.media_bytes,
        report.overhead_bytes,
        report.requests,
        report.reconnects,
        report.switches
    )?;
    if let Some(at) = report.first_picture {
        writeln!(out, "picture      the first after {at:.3} s")?;
    }
    packets(out, report.rtp.as_ref())?;
    if let Some(verified) = &report.verified {
        writeln!(
            out,
            "verified     {} units, {} access units, {} found in the reference, {} missing, {} holes",
            verified.units, verified.samples, verified.matched, verified.missing, verified.holes
        )?;
    }
    for (kind, count) in &report.troubles {
        writeln!(out, "trouble      {kind}: {count} times")?;
    }
    if let Some(error) = &report.error {
        writeln!(out, "error        {}: {} ({})", error.kind, error.what, error.place)?;
    }
    Ok(())
}

/// Prints the results of `capacity`.
pub(crate) fn capacity(document: &capacity::Document) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{} over {}", document.url, document.protocol)?;
    if let Some(encoded) = document.encoded_bit_rate {
        writeln!(out, "media        {encoded:.3} Mbit/s")?;
    }
    writeln!(
        out,
        "needed       {:.3} Mbit/s, by {:.0} % of the viewers",
        document.min_bit_rate,
        document.share * 100.0
    )?;
    for step in &document.steps {
        let mark = match (step.generator.saturated, step.passed) {
            (true, _) => "  SATURATED",
            (false, true) => "",
            (false, false) => "  too many",
        };
        writeln!(
            out,
            "{:>6} viewers  {} served, mean {:.3} Mbit/s, {} stalls, {} failed{mark}",
            step.viewers,
            step.served,
            step.bit_rate,
            step.results.stalls,
            step.results.errors.values().sum::<u64>()
        )?;
    }
    let most = document.capacity;
    let capacity = match document.inflexion {
        Some(inflexion) => format!("{most} viewers; {inflexion} were too many"),
        None => format!("at least {most} viewers"),
    };
    writeln!(out, "capacity     {capacity}")?;
    if let Some(lost) = &document.lost {
        writeln!(out, "LOST         {lost}: no further step could run")?;
    }
    if let Some(last) = document.steps.last() {
        last.agents.iter().try_for_each(|agent| agent.write(&mut out))?;
    }
    let generators = document.steps.iter().map(|step| &step.generator);
    for reason in generators.flat_map(|generator| &generator.reasons) {
        writeln!(out, "SATURATED    {reason}: the figures are not to be trusted")?;
    }
    Ok(())
}

fn write_viewers(out: &mut impl Write, viewers: &Viewers) -> io::Result<()> {
    row(out, "join delay", viewers.join_delay, "s")?;
    row(out, "start-up", viewers.startup, "s")?;
    row(out, "received", viewers.received, "s")?;
    row(out, "bit rate", viewers.bit_rate, "Mbit/s")?;
    row(out, "delivery", viewers.delivery, "s")?;
    row(out, "99 % within", viewers.delivery_p99, "s")?;
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
    packets(out, viewers.rtp.as_ref())?;
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

fn packets(out: &mut impl Write, rtp: Option<&Rtp>) -> io::Result<()> {
    let Some(rtp) = rtp else { return Ok(()) };
    let Rtp { packets, lost, recovered, keyframe_requests } = rtp;
    writeln!(
        out,
        "packets      {packets}, {lost} lost, {recovered} recovered, {keyframe_requests} keyframes asked for"
    )
}

fn row(out: &mut impl Write, name: &str, of: Option<Distribution>, unit: &str) -> io::Result<()> {
    let Some(of) = of else { return Ok(()) };
    let told = |quantile, value: f64| {
        if percentile::has(of.count, quantile) { format!("{value:.3}") } else { "–".to_owned() }
    };
    let (half, p90, p99) = (told(0.5, of.p50), told(0.9, of.p90), told(0.99, of.p99));
    writeln!(
        out,
        "{name:<12} mean {:.3}  median {half}  90 % {p90}  99 % {p99}  max {:.3} {unit}  of {}",
        of.mean, of.max, of.count
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
