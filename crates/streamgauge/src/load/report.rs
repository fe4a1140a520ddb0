//! The results of a run: one document for programs, and tables for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::UTF8_HORIZONTAL_ONLY};
use indicatif::HumanBytes;
use schemars::JsonSchema;
use serde::Serialize;

use super::criterion::{Criterion, Verdict};
use super::distribution::Distribution;
use super::tally::{Counters, Fault};
use super::trust::{self, Generator};
use super::{Outcome, Pace, Plan};
use crate::agents::Agent;
use crate::{Exit, percentile};

/// How many targets the document names.
const NAMED: usize = 10;

/// The results of a run of `http`. Times are in seconds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// `open` (a constant rate) or `closed` (each connection waits for its answer).
    pub r#loop: &'static str,
    /// Requests per second that were asked for, in an open loop.
    pub rate: Option<f64>,
    /// The first of the targets, by method and URL.
    pub targets: Vec<String>,
    /// Number of targets.
    pub target_count: usize,
    /// The most connections at a time. A closed loop has exactly this many.
    pub connections: u64,
    /// Number of processes that shared the run.
    pub processes: u32,
    /// The most requests without an answer on a connection.
    pub pipeline: usize,
    /// Whether connections were used again.
    pub keep_alive: bool,
    /// The most bytes per second that a connection took, if limited.
    pub read_rate: Option<u64>,
    /// How long a connection rested between an answer and its next request, in a closed loop.
    pub think: f64,
    /// The time over which the connections of a closed loop started.
    pub ramp: f64,
    /// `HTTP/1.1`, `HTTP/2`, or `limit`: without HTTP, a number of bytes for one byte.
    pub protocol: &'static str,
    /// Whether the client was the general one (for HTTP/2 and TLS), which costs several times as
    /// much.
    pub general_client: bool,
    /// Duration that was asked for.
    pub duration: Option<f64>,
    /// Duration including the wait for the last answers.
    pub elapsed: f64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// The counters of the whole run.
    pub counters: Counters,
    /// Complete answers per second.
    pub responses_per_second: f64,
    /// Bytes of bodies per second.
    pub body_bytes_per_second: f64,
    /// Complete answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a good answer, by kind.
    pub errors: BTreeMap<&'static str, Kind>,
    /// Time from when a request was due to the first byte of its answer, for complete answers.
    pub first_byte: Option<Distribution>,
    /// Time from when a request was due to the last byte of its answer, for complete answers.
    pub last_byte: Option<Distribution>,
    /// Time to open a connection, including TLS.
    pub connect: Option<Distribution>,
    /// Requests that waited for a connection because all were busy.
    pub queued: u64,
    /// Requests without an answer when the run was cut off; not errors.
    pub unfinished: u64,
    /// Requests of the schedule that never started: the run was interrupted, or the generator stood still to its end.
    pub not_begun: u64,
    /// What happened in each second.
    pub seconds: Vec<Second>,
    /// What the kernel counted during the run, for the whole network of this machine, or of those
    /// that shared the run, named as in nstat.
    pub kernel: crate::meter::kernel::Kernel,
    /// Whether the figures can be trusted.
    pub generator: Generator,
    /// The machines that shared the run; none if it was this one alone.
    pub agents: Vec<Agent>,
    /// The criteria for the server.
    pub criteria: Vec<Verdict>,
    /// Warnings for readers of the figures.
    pub warnings: Vec<String>,
    /// Exit status of the program: 0, 1 or 3.
    pub exit_status: u8,
}

/// Errors of one kind.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Kind {
    /// How many.
    pub count: u64,
    /// The first error.
    pub first: String,
}

/// The results between two readings of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Second {
    /// End of the interval.
    pub at: f64,
    /// Length of the interval, near 1.
    pub length: f64,
    /// Requests started.
    pub requests: u64,
    /// Complete answers.
    pub responses: u64,
    /// Requests without a good answer.
    pub errors: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Processor time of the generator.
    pub generator_cpu: f64,
}

impl Document {
    /// Combines the results of a run and judges them.
    pub fn new(plan: &Plan, outcome: &Outcome, criteria: &[Criterion]) -> Self {
        let total = &outcome.total;
        let counters = total.counters;
        let per_second = |count: u64| count as f64 / outcome.elapsed.max(1e-9);
        let (r#loop, rate) = match plan.pace {
            Pace::Open { rate } => ("open", Some(rate)),
            Pace::Closed => ("closed", None),
        };
        let named = |target: &super::target::Target| format!("{} {}", target.method, target.url);
        let generator = Generator::judge(plan, outcome, criteria);
        let mut verdicts: Vec<_> = criteria.iter().map(|c| c.judge(outcome)).collect();
        verdicts.extend(implied(plan, outcome));
        let hard = |verdict: &Verdict| verdict.failed && IMPLIED.contains(&&*verdict.fail_if);
        let exit = if verdicts.iter().any(hard) {
            Exit::Failed
        } else if generator.saturated {
            Exit::Saturated
        } else if verdicts.iter().any(|verdict| verdict.failed) {
            Exit::Failed
        } else {
            Exit::Success
        };
        let errors = total.faults.iter().map(|(fault, (count, first))| {
            (fault.name(), Kind { count: *count, first: first.clone() })
        });
        Self {
            r#loop,
            rate,
            targets: plan.targets.iter().take(NAMED).map(named).collect(),
            target_count: plan.targets.len(),
            connections: plan.connections,
            processes: plan.processes,
            pipeline: plan.pipeline,
            keep_alive: plan.keep_alive,
            read_rate: plan.manner.read_rate,
            think: plan.manner.think.as_secs_f64(),
            ramp: plan.manner.ramp.as_secs_f64(),
            protocol: match plan.http2 {
                _ if plan.is_bare() => "limit",
                true => "HTTP/2",
                false => "HTTP/1.1",
            },
            general_client: plan.is_general(),
            duration: plan.length().map(|length| length.as_secs_f64()),
            elapsed: outcome.elapsed,
            interrupted: outcome.interrupted,
            counters,
            responses_per_second: per_second(counters.responses),
            body_bytes_per_second: per_second(counters.body_bytes),
            statuses: total.statuses.clone(),
            errors: errors.collect(),
            first_byte: Distribution::of(&total.first_byte),
            last_byte: Distribution::of(&total.last_byte),
            connect: Distribution::of(&total.connect),
            queued: total.queued,
            unfinished: total.unfinished,
            not_begun: total.not_begun,
            seconds: seconds(outcome),
            kernel: outcome.kernel.clone(),
            generator,
            agents: outcome.agents.clone(),
            criteria: verdicts,
            warnings: warnings(plan, outcome),
            exit_status: exit as u8,
        }
    }

    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        [Exit::Failed, Exit::Saturated]
            .into_iter()
            .find(|exit| *exit as u8 == self.exit_status)
            .unwrap_or(Exit::Success)
    }
}

/// Criteria that always apply. A saturated generator does not excuse their failure.
const IMPLIED: [&str; 2] = ["responses<1", "corrupt>0"];

fn implied(plan: &Plan, outcome: &Outcome) -> Vec<Verdict> {
    let counters = &outcome.total.counters;
    let corrupt = outcome.total.faults.get(&Fault::Corrupt).map_or(0, |(count, _)| *count);
    let none = counters.requests > 0 && counters.responses == 0 && !outcome.interrupted;
    let mut verdicts = Vec::new();
    if none {
        let fail_if = IMPLIED[0].to_owned();
        verdicts.push(Verdict { fail_if, measured: 0.0, failed: true });
    }
    if plan.check.is_some() {
        let fail_if = IMPLIED[1].to_owned();
        verdicts.push(Verdict { fail_if, measured: corrupt as f64, failed: corrupt > 0 });
    }
    verdicts
}

fn seconds(outcome: &Outcome) -> Vec<Second> {
    let mut seconds = Vec::with_capacity(outcome.ticks.len());
    let (mut at, mut before) = (0.0, Counters::default());
    for tick in &outcome.ticks {
        let now = tick.counters;
        let length = tick.at - at;
        seconds.push(Second {
            at: tick.at,
            length,
            requests: now.requests.saturating_sub(before.requests),
            responses: now.responses.saturating_sub(before.responses),
            errors: now.errors.saturating_sub(before.errors),
            body_bytes: now.body_bytes.saturating_sub(before.body_bytes),
            generator_cpu: now.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9,
        });
        (at, before) = (tick.at, now);
    }
    seconds
}

fn warnings(plan: &Plan, outcome: &Outcome) -> Vec<String> {
    let total = &outcome.total;
    let mut warnings = Vec::new();
    if outcome.interrupted {
        warnings.push("interrupted: figures are of the time until then".to_owned());
    }
    if total.counters.errors > 0 {
        let errors = total.counters.errors;
        warnings.push(format!("{errors} requests failed; percentiles are of the others"));
    }
    if plan.connections_given && matches!(plan.pace, Pace::Open { .. }) && total.queued > 0 {
        warnings.push(format!(
            "{} requests waited for one of the {} connections allowed; the wait is in their latency",
            total.queued, plan.connections
        ));
    }
    warnings.extend(trust::lag_warning(total));
    if plan.is_general() {
        warnings.push(
            "HTTP/2 and TLS go through a general client, which costs several times the processor \
             time of the one for plain HTTP/1.1"
                .to_owned(),
        );
    }
    warnings
}

/// Writes a document as text for people.
///
/// # Errors
/// The text cannot be written.
pub fn write(document: &Document, to: &mut dyn Write) -> io::Result<()> {
    let counters = &document.counters;
    writeln!(to, "{}", summary(document))?;
    let head = ["", "count", "p50", "p90", "p99", "p99.9", "p99.99", "max", "mean"];
    let mut latency = table(head);
    let rows = [
        ("first byte", document.first_byte),
        ("last byte", document.last_byte),
        ("connect", document.connect),
        ("schedule lag", document.generator.lag),
    ];
    for (name, distribution) in rows {
        let Some(d) = distribution else { continue };
        let percentiles =
            [(0.5, d.p50), (0.9, d.p90), (0.99, d.p99), (0.999, d.p99_9), (0.9999, d.p99_99)];
        let told = percentiles.map(|(quantile, value)| {
            if percentile::has(d.count, quantile) { time(value) } else { "–".to_owned() }
        });
        let cells = [name.to_owned(), d.count.to_string()].into_iter().chain(told);
        latency.add_row(cells.chain([d.max, d.mean].map(time)));
    }
    align(&mut latency);
    if latency.row_count() > 0 {
        writeln!(to, "{latency}")?;
    }
    if !document.statuses.is_empty() || !document.errors.is_empty() {
        let mut answers = table(["answer", "count", "first of them"]);
        for (status, count) in &document.statuses {
            answers.add_row([status.to_string(), count.to_string(), String::new()]);
        }
        for (kind, Kind { count, first }) in &document.errors {
            answers.add_row([(*kind).to_owned(), count.to_string(), first.clone()]);
        }
        writeln!(to, "{answers}")?;
    }
    writeln!(
        to,
        "bodies {}, heads {}, requests {}; {} connections, {} requests sent again, {} redirections",
        HumanBytes(counters.body_bytes),
        HumanBytes(counters.head_bytes),
        HumanBytes(counters.sent_bytes),
        counters.connections,
        counters.sent_again,
        counters.redirects
    )?;
    let telling: Vec<_> = ["TcpRetransSegs", "TcpExtTCPRcvQDrop", "TcpExtPruneCalled"]
        .into_iter()
        .chain(["TcpExtListenDrops", "TcpExtTCPTimeouts"])
        .filter(|name| document.kernel.of(name) > 0)
        .map(|name| format!("{name} {}", document.kernel.of(name)))
        .collect();
    if !telling.is_empty() {
        writeln!(to, "kernel: {}", telling.join(", "))?;
    }
    writeln!(
        to,
        "generator: {:.2} s of processor time, {:.0} answers and {} by second of it",
        document.generator.cpu,
        document.generator.responses_per_cpu_second,
        HumanBytes(document.generator.body_bytes_per_cpu_second as u64)
    )?;
    for agent in &document.agents {
        agent.write(to)?;
    }
    for Verdict { fail_if, measured, failed } in &document.criteria {
        let verdict = if *failed { "FAILED" } else { "passed" };
        writeln!(to, "{verdict}: fail if {fail_if} (measured {measured:.6})")?;
    }
    for warning in &document.warnings {
        writeln!(to, "note: {warning}")?;
    }
    for reason in &document.generator.reasons {
        writeln!(to, "SATURATED, these figures are not to be trusted: {reason}")?;
    }
    Ok(())
}

fn summary(document: &Document) -> String {
    let how = match document.rate {
        Some(rate) => format!("{rate} requests/s, at most {} connections", document.connections),
        None => format!("{} connections", document.connections),
    };
    format!(
        "{} ({how}, {}): {} answers in {:.2} s, {:.1}/s, {}/s",
        document.targets.first().map_or("", String::as_str),
        document.protocol,
        document.counters.responses,
        document.elapsed,
        document.responses_per_second,
        HumanBytes(document.body_bytes_per_second as u64)
    )
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic).set_header(header);
    table
}

fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// Writes a time in a suitable unit.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.1} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}
