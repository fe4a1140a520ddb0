//! Judges whether the generator was the limit of its own measurement.
//!
//! Latencies count from the time when a request was due. So every delay of the generator is part of
//! them: there is no coordinated omission. The percentiles are the times that people would have
//! waited if their requests had come through this machine. This module asks how much of a
//! percentile the server caused.
//!
//! For this, the generator times each answer twice: from when its request was due, and from when it
//! took the request up. The second time also leaves out later pauses of the generator, during which
//! the answer may have waited unread. The difference of the two percentiles estimates how much
//! latency the generator caused. The estimate is too high if the answer would have come later
//! anyway.
//!
//! A short standstill is reported, and readers can judge it. A generator that was late for long, or
//! had no processor to do more, did not make the load that was asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::criterion::Criterion;
use super::distribution::Distribution;
use super::tally::{Fault, Tally};
use super::{Outcome, Pace, Plan};

/// An event loop could not have done more if it was busy, or without a processor, for this share of
/// the time.
const BUSY: f64 = 0.95;
/// A generator was late for long if this share of a run's requests was late: it is a tenth of the
/// time.
const LONG: f64 = 0.1;
/// Requests that are this many seconds late were behind a backlog, whatever their latencies are.
const BACKLOG: f64 = 0.1;
/// Requests are late from this many seconds on.
const LATE: f64 = 0.001;
/// From this share of a percentile on, late requests do not measure the server.
const DECISIVE: f64 = 0.25;
/// From this share of a percentile, and this many seconds, a lag is worth reporting.
const TELLING: (f64, f64) = (0.1, 0.000_1);

/// The times of an event loop.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Worker {
    /// Seconds on a processor.
    pub cpu: f64,
    /// Seconds during which it was ready but had no processor.
    pub starved: f64,
    /// Seconds during which it ran, in all.
    pub wall: f64,
    /// The agent whose it is; absent on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

impl Worker {
    /// Why it could not have done more, if so.
    fn overload(&self) -> Option<String> {
        let Self { cpu, starved, wall, .. } = self;
        // A shorter run is over before its possible rate is known.
        (*wall > 0.2 && cpu + starved > BUSY * wall).then(|| {
            format!(
                "worked for {:.0} % of the time and waited for a processor for {:.0} %",
                cpu / wall * 100.0,
                starved / wall * 100.0
            )
        })
    }
}

/// Why the figures of an agent cannot be trusted. Names the agent in what its tally describes.
pub(super) fn of_agent(name: &str, total: &mut Tally, workers: &[Worker]) -> Vec<String> {
    for (_, description) in total.faults.values_mut() {
        *description = format!("agent {name}: {description}");
    }
    let overload = |(number, worker): (usize, &Worker)| {
        Some(format!("agent {name}: event loop {number} {}", worker.overload()?))
    };
    let mut reasons: Vec<_> = workers.iter().enumerate().filter_map(overload).collect();
    reasons.extend(behind(total).map(|behind| format!("agent {name}: {behind}")));
    if let Some((count, first)) = total.faults.get(&Fault::Local) {
        reasons.push(format!("the machine lacked something {count} times: {first}"));
    }
    reasons
}

/// The judgement whether this program was the limit of its own measurement.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Generator {
    /// Its event loops.
    pub workers: Vec<Worker>,
    /// Processor time of all event loops.
    pub cpu: f64,
    /// Answers per second of processor time.
    pub responses_per_cpu_second: f64,
    /// Bytes of bodies per second of processor time.
    pub body_bytes_per_cpu_second: f64,
    /// How late requests of a schedule were taken up. It is part of all latencies.
    pub lag: Option<Distribution>,
    /// The part of this lag in the percentiles of the time to the last byte: the difference to the
    /// percentiles of the same requests, timed from when each was taken up.
    pub lag_share: Option<LagShare>,
    /// Whether it was the limit, so that the figures cannot be trusted.
    pub saturated: bool,
    /// Why it was the limit.
    pub reasons: Vec<String>,
}

/// The part of the lag in percentiles, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "percentiles are named by themselves")]
pub struct LagShare {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p99_9: f64,
}

impl LagShare {
    fn of(total: &Tally) -> Option<Self> {
        let at = |quantile| share(total, quantile);
        (!total.prompt.is_empty()).then(|| Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p99_9: at(0.999),
        })
    }
}

/// By how many seconds the generator's lag makes a quantile of the time to the last byte longer.
pub(super) fn held_up(total: &Tally, quantile: f64) -> f64 {
    if total.prompt.is_empty() {
        return 0.0;
    }
    let (all, prompt) =
        (total.last_byte.value_at_quantile(quantile), total.prompt.value_at_quantile(quantile));
    all.saturating_sub(prompt) as f64 / 1e9
}

fn share(total: &Tally, quantile: f64) -> f64 {
    held_up(total, quantile) / (total.last_byte.value_at_quantile(quantile).max(1) as f64 / 1e9)
}

impl Generator {
    /// Judges a run that has criteria.
    pub(super) fn judge(plan: &Plan, outcome: &Outcome, criteria: &[Criterion]) -> Self {
        let total = &outcome.total;
        let counters = &total.counters;
        let cpu = counters.cpu_ns as f64 / 1e9;
        let by_cpu = |count: u64| if cpu > 0.0 { count as f64 / cpu } else { 0.0 };
        let workers = outcome.workers.clone();
        let mut reasons = Vec::new();
        reasons.extend(outcome.lost.iter().map(|lost| {
            format!("{lost}: its part of the load is in no figure but those of `seconds`")
        }));
        reasons.extend(outcome.late.iter().cloned());
        if outcome.agents.is_empty() {
            for (number, worker) in workers.iter().enumerate() {
                let overload = worker.overload();
                reasons.extend(overload.map(|why| format!("event loop {number} {why}")));
            }
            reasons.extend(behind(total));
            if let Some((count, first)) = total.faults.get(&Fault::Local) {
                reasons.push(format!("this machine lacked something {count} times: {first}"));
            }
        }
        let is_whole = matches!(plan.pace, Pace::Open { .. }) && !outcome.interrupted;
        reasons.extend(is_whole.then(|| left_out(total)).flatten());
        let of_agents = outcome.agents.iter().flat_map(|agent| &agent.reasons);
        reasons.extend(
            of_agents
                .filter(|why| !outcome.lost.contains(why) && !outcome.late.contains(why))
                .cloned(),
        );
        if !plan.connections_given && total.queued * 100 > counters.requests {
            reasons.push(format!(
                "{} requests waited for one of {} connections, all that open files allow",
                total.queued, plan.connections
            ));
        }
        reasons.extend(criteria.iter().filter_map(|criterion| criterion.failed_by_lag(outcome)));
        Self {
            workers,
            cpu,
            responses_per_cpu_second: by_cpu(counters.responses),
            body_bytes_per_cpu_second: by_cpu(counters.body_bytes),
            lag: Distribution::of(&total.lag),
            lag_share: LagShare::of(total),
            saturated: !reasons.is_empty(),
            reasons,
        }
    }
}

/// Returns how late the generator was, if it was late for long.
fn behind(total: &Tally) -> Option<String> {
    let late = total.lag.value_at_quantile(1.0 - LONG) as f64 / 1e9;
    let begun =
        format!("{:.0} % of the requests were begun over {:.1} ms late", LONG * 100.0, late * 1e3);
    let share = share(total, 1.0 - LONG);
    if late > BACKLOG {
        Some(format!("{begun}: the rate was not kept"))
    } else if late > LATE && share > DECISIVE {
        Some(format!("{begun}, which is {:.0} % of p90", share * 100.0))
    } else {
        None
    }
}

/// Returns how much of its schedule the generator has left out, if that is much: it stood still until the end of its
/// run. Such requests are in no lag.
fn left_out(total: &Tally) -> Option<String> {
    let share = total.not_begun as f64 / (total.not_begun + total.counters.requests).max(1) as f64;
    (share > LONG).then(|| {
        format!("{:.0} % of the requests were never begun: the rate was not kept", share * 100.0)
    })
}

/// Returns the percentiles with a considerable part of lag, if there are enough answers for them.
pub(super) fn lag_warning(total: &Tally) -> Option<String> {
    let parts: Vec<_> =
        [("p50", 0.5, 1), ("p90", 0.9, 10), ("p99", 0.99, 100), ("p99.9", 0.999, 1000)]
            .into_iter()
            .filter(|(_, quantile, least)| {
                total.prompt.len() >= *least
                    && share(total, *quantile) > TELLING.0
                    && held_up(total, *quantile) > TELLING.1
            })
            .map(|(name, quantile, _)| format!("{:.0} % of {name}", share(total, quantile) * 100.0))
            .collect();
    (!parts.is_empty()).then(|| format!("the generator's own lag is up to {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Makes a tally of answers that took 2 ms. Their requests were taken up late, by these times
    /// in milliseconds.
    fn late(lags: impl Iterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        for lag in lags {
            let (due, taken) = (1000 * MS, (1000 + lag) * MS);
            tally.lag.saturating_record(taken - due);
            tally.answered(200, due, Some(taken), taken + MS, taken + 2 * MS);
        }
        tally
    }

    #[test]
    fn a_moments_standstill_is_told_and_no_reason_to_throw_the_run_away() {
        // 50 of 1,000 requests were due while the generator stood still for 50 ms.
        let tally = late((0..1000).map(|n| 50_u64.saturating_sub(n)));
        assert_eq!(behind(&tally), None);
        let warning = lag_warning(&tally).unwrap();
        assert_eq!(warning, "the generator's own lag is up to 95 % of p99, 96 % of p99.9");
        assert!(held_up(&tally, 0.99) > 0.039);
        let shares = LagShare::of(&tally).unwrap();
        assert_eq!((shares.p50, shares.p90), (0.0, 0.0));
    }

    #[test]
    fn to_be_late_for_long_is() {
        let tally = late((0..1000).map(|n| u64::from(n < 200) * 3));
        assert_eq!(
            behind(&tally).unwrap(),
            "10 % of the requests were begun over 3.0 ms late, which is 60 % of p90"
        );
        // A growing backlog is not the server's, even if the server is slow, too.
        let growing = late(0..1000);
        assert!(behind(&growing).unwrap().contains("the rate was not kept"));
    }

    #[test]
    fn to_leave_out_a_part_of_the_schedule_is_too() {
        let mut tally = late((0..900).map(|_| 0));
        (tally.counters.requests, tally.not_begun) = (900, 100);
        assert_eq!((behind(&tally), left_out(&tally)), (None, None));
        tally.not_begun = 2100;
        let why = "70 % of the requests were never begun: the rate was not kept";
        assert_eq!(left_out(&tally).unwrap(), why);
    }

    #[test]
    fn lag_that_no_percentile_shows_is_no_matter() {
        // All requests were 12 ms late, and answered after seconds.
        let mut tally = late((0..1000).map(|_| 12));
        for _ in 0..1000 {
            tally.answered(200, 0, Some(12 * MS), 3000 * MS, 3000 * MS);
            tally.answered(200, 0, Some(12 * MS), 3000 * MS, 3000 * MS);
        }
        assert_eq!((behind(&tally), lag_warning(&tally)), (None, None));
        // A closed loop has no schedule, so it cannot be late.
        let mut closed = Tally::default();
        closed.answered(200, 5, None, 10, 20);
        assert_eq!(
            (behind(&closed), lag_warning(&closed), LagShare::of(&closed)),
            (None, None, None)
        );
    }
}
