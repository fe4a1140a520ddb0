//! The verdict at the head of a report: what each server costs and delivers, by delivery, and who
//! wins by how much.

use schemars::JsonSchema;
use serde::Serialize;

use super::axis::{Axis, Scale};
use super::contest::{self, Contest, Entrant};
use super::figure::{Figure, Panel};
use super::plot::{Bar, Bars, Plot, Style};
use super::table::{Aspect, Cell, Row, Table};
use crate::number;
use crate::runs::bootstrap::Statistic;
use crate::runs::marks::{Doubt, MARKS, marks};
use crate::runs::statistics::Summary;
use crate::runs::{Study, bootstrap};

/// The verdict of a report.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Verdict {
    /// What was compared.
    pub compared: Vec<String>,
    /// Who wins, for each delivery.
    pub rulings: Vec<Ruling>,
    /// What each server costs and delivers.
    pub table: Table,
    /// The same as plots.
    pub figure: Figure,
}

/// Who wins at a delivery.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Ruling {
    /// The delivery: `low-latency HLS`.
    pub delivery: String,
    /// The case that is judged: the load and its parameters.
    pub case: String,
    /// A sentence for each criterion.
    pub sentences: Vec<String>,
}

/// What servers are compared by. Of its metrics, the first that two servers have counts.
struct Criterion {
    title: &'static str,
    of_viewers: &'static [&'static str],
    of_requests: &'static [&'static str],
    /// What the winner does.
    least: &'static str,
    /// What cannot be told where two servers are too close.
    less: &'static str,
}

const CRITERIA: [Criterion; 3] = [
    Criterion {
        title: "processor time, µs",
        of_viewers: &["server_us_per_client_second"],
        of_requests: &["server_us_per_request"],
        least: "needs the least processor time",
        less: "needs less processor time",
    },
    Criterion {
        title: "delay at 99 %, ms",
        of_viewers: &["delivery_worst_ms", "delivery_p99_ms", "late_p99_ms", "startup_p99_ms"],
        of_requests: &["latency_p99_ms"],
        least: "is the promptest",
        less: "is prompter",
    },
    Criterion {
        title: "memory, MiB",
        of_viewers: &["server_memory_mib"],
        of_requests: &["server_memory_mib"],
        least: "uses the least memory",
        less: "uses less memory",
    },
];

/// What servers delivered, for the table alone.
const DELIVERED: [(&str, &str); 3] = [
    ("viewers satisfied, %", "satisfied_percent"),
    ("viewers served, %", "served_percent"),
    ("answers, 1/s", "requests_per_second"),
];

/// The unit of a metric in a sentence.
fn unit(metric: &str) -> &'static str {
    match metric {
        "server_us_per_client_second" => "µs for a second of a viewer",
        "server_us_per_request" => "µs for a request",
        "delivery_worst_ms" => {
            "ms from capture to arrival, for 99 % of the media of 99 % of viewers"
        }
        "delivery_p99_ms" => {
            "ms from capture to arrival, the mean of a viewer, for 99 % of viewers"
        }
        "late_p99_ms" => "ms of lateness at 99 %",
        "startup_p99_ms" => "ms from joining to playing at 99 %",
        "latency_p99_ms" => "ms to the last byte of an answer at 99 %",
        _ => "MiB",
    }
}

/// A server's figure in a contest.
struct Standing<'a> {
    entrant: &'a Entrant<'a>,
    values: Vec<f64>,
    summary: Summary,
    doubt: Option<Doubt>,
}

impl Criterion {
    /// The metric that counts in a contest; `None` if no two servers have the same.
    fn metric(&self, contest: &Contest<'_>) -> Option<&'static str> {
        let metrics = if contest.has_viewers { self.of_viewers } else { self.of_requests };
        let sound = || contest.entrants.iter().filter(|entrant| entrant.is_sound);
        let has = |metric: &str| {
            sound().filter(|entrant| !entrant.values(metric).is_empty()).count() >= 2
        };
        metrics.iter().copied().find(|metric| has(metric))
    }

    /// The servers that may win, from the least to the most.
    fn standings<'a>(&self, contest: &'a Contest<'a>) -> Vec<Standing<'a>> {
        let Some(metric) = self.metric(contest) else { return vec![] };
        let standing = |entrant: &'a Entrant<'a>| {
            let values = entrant.values(metric);
            let summary = Summary::of(values.iter().copied())?;
            let doubt = Doubt::of(&entrant.trials, metric);
            Some(Standing { entrant, values, summary, doubt })
        };
        let sound = contest.entrants.iter().filter(|entrant| entrant.is_sound);
        let mut standings: Vec<Standing<'_>> = sound.filter_map(standing).collect();
        standings.sort_by(|a, b| a.summary.median.total_cmp(&b.summary.median));
        standings
    }

    /// Says who wins a contest by how much, and in how many other contests of the delivery.
    fn sentence(&self, contest: &Contest<'_>, all: &[Contest<'_>]) -> Option<String> {
        let standings = self.standings(contest);
        let [first, second, ..] = standings.as_slice() else { return None };
        let (least, next) = (first.summary.median, second.summary.median);
        // A time below a tick of the clock has no ratio.
        if first.summary.min <= 0.0 {
            return None;
        }
        let title =
            |standing: &Standing<'_>| contest.study.peers[standing.entrant.peer].title.clone();
        let (winner, other) = (title(first), title(second));
        let unit = unit(self.metric(contest)?);
        let (least, times) = (number::sensible(least), number::fixed(next / least, 2));
        let interval = bootstrap::interval(&first.values, &second.values, Statistic::Median);
        let Some((low, high)) = interval else {
            return Some(format!(
                "In one repetition, which may be chance, {winner} {}, {least} {unit}; {other} comes \
                 next with {times} times as much.",
                self.least
            ));
        };
        let spread = format!("{} to {}", number::fixed(1.0 + low, 2), number::fixed(1.0 + high, 2));
        if low <= 0.0 {
            return Some(format!(
                "Whether {winner} or {other} {} cannot be told: {least} and {} {unit}, \
                 {times} times as much ({spread}).",
                self.less,
                number::sensible(next)
            ));
        }
        let (wins, of) = self.wins(contest, first.entrant.peer, all);
        let more = if of > 1 {
            format!(" It is first in {wins} of {of} cases of this delivery.")
        } else {
            String::new()
        };
        Some(format!(
            "{winner} {}, {least} {unit}; {other} comes next with {times} times as much \
             ({spread}).{more}",
            self.least
        ))
    }

    /// In how many contests of the same delivery a server is the first, and how many there are.
    fn wins(&self, contest: &Contest<'_>, peer: usize, all: &[Contest<'_>]) -> (usize, usize) {
        let name = &contest.study.peers[peer].name;
        let (mut wins, mut of) = (0, 0);
        for other in all.iter().filter(|other| other.delivery == contest.delivery) {
            if let [first, _, ..] = self.standings(other).as_slice()
                && first.summary.min > 0.0
            {
                of += 1;
                wins += usize::from(other.study.peers[first.entrant.peer].name == *name);
            }
        }
        (wins, of)
    }
}

/// Makes the verdict with the first table and the first figure of a report. `None` if no two servers
/// can be compared.
pub(super) fn make(studies: &[Study]) -> Option<Verdict> {
    let mut all = contest::find(studies);
    all.retain(|contest| CRITERIA.iter().any(|criterion| criterion.metric(contest).is_some()));
    let mut deliveries: Vec<&str> = Vec::new();
    for contest in &all {
        if !deliveries.contains(&contest.delivery.as_str()) {
            deliveries.push(&contest.delivery);
        }
    }
    // Of each delivery, the last of those contests that have the most servers: the largest load. A
    // single repetition tells no spread, so a case with more of them is better.
    let judged: Vec<&Contest<'_>> = deliveries
        .iter()
        .filter_map(|delivery| {
            let own = all.iter().filter(|contest| contest.delivery == **delivery);
            own.max_by_key(|contest| (contest.is_repeated(), contest.size()))
        })
        .collect();
    if judged.is_empty() {
        return None;
    }
    let ruling = |contest: &&Contest<'_>| Ruling {
        delivery: contest.delivery.clone(),
        case: contest.case.clone(),
        sentences: CRITERIA.iter().filter_map(|each| each.sentence(contest, &all)).collect(),
    };
    Some(Verdict {
        compared: compared(studies, all.len(), judged.len()),
        rulings: judged.iter().map(ruling).collect(),
        table: table(&judged),
        figure: figure(&judged),
    })
}

fn compared(studies: &[Study], cases: usize, deliveries: usize) -> Vec<String> {
    let mut servers: Vec<&str> = Vec::new();
    let mut machines: Vec<&str> = Vec::new();
    for study in studies {
        let titles = study.peers.iter().map(|peer| peer.title.as_str());
        servers.extend(titles.filter(|title| !servers.contains(title)).collect::<Vec<_>>());
        for run in &study.runs {
            if !machines.contains(&run.machine.processor.as_str()) {
                machines.push(&run.machine.processor);
            }
        }
    }
    let many = |count: usize, one: &str, several: &str| {
        format!("{count} {}", if count == 1 { one } else { several })
    };
    vec![
        format!("Compared: {}.", servers.join("; ")),
        format!(
            "There are {} in which at least two servers can be compared, of {}, on {}. Of each \
             delivery, one is judged: of the cases with repetitions those with the most servers, \
             and the last of these.",
            many(cases, "case", "cases"),
            many(deliveries, "delivery", "deliveries"),
            machines.join("; ")
        ),
        "A range in parentheses holds 95 % of what repetitions, drawn anew, tell.".to_owned(),
    ]
}

fn heading(contest: &Contest<'_>) -> String {
    format!("{}: {}", contest.delivery, contest.case)
}

fn table(contests: &[&Contest<'_>]) -> Table {
    let mut rows = Vec::new();
    for contest in contests {
        let metrics: Vec<Option<&str>> = CRITERIA
            .iter()
            .map(|criterion| criterion.metric(contest))
            .chain(DELIVERED.iter().map(|(_, metric)| Some(*metric)))
            .collect();
        for entrant in &contest.entrants {
            // Less than a tick of the kernel's clock reads as no processor time: it wins nothing. Nor does a noisy figure.
            let is_best = |at: usize| {
                let standings = CRITERIA.get(at).map(|criterion| criterion.standings(contest));
                match standings.unwrap_or_default().as_slice() {
                    [first, second, ..] => {
                        first.entrant.peer == entrant.peer
                            && first.doubt.is_none()
                            && first.summary.median > 0.0
                            && first.summary.median < second.summary.median
                    }
                    _ => false,
                }
            };
            let cells = metrics.iter().enumerate().map(|(at, metric)| {
                let mut cell = cell(entrant, (*metric)?)?;
                cell.best = is_best(at);
                Some(cell)
            });
            rows.push(Row {
                heads: vec![heading(contest), contest.study.peers[entrant.peer].title.clone()],
                cells: cells.collect(),
            });
        }
    }
    let titles = CRITERIA.iter().map(|criterion| criterion.title);
    let titles: Vec<&str> = titles.chain(DELIVERED.map(|(title, _)| title)).collect();
    let mut columns: Vec<Vec<String>> =
        titles.iter().map(|title| vec![(*title).to_owned()]).collect();
    for at in (0..columns.len()).rev() {
        if rows.iter().all(|row| row.cells[at].is_none()) {
            columns.remove(at);
            for row in &mut rows {
                row.cells.remove(at);
            }
        }
    }
    let mut notes = vec![
        "Processor time is that of a request, or of a viewer in a second. Delays are to the last \
         byte of an answer; of viewers, from capture to arrival, or else how late media came, or \
         how long they took to play. Bold: the least of those that can be compared."
            .to_owned(),
    ];
    let cells = || rows.iter().flat_map(|row| row.cells.iter().flatten());
    for (mark, meaning) in MARKS {
        if cells().any(|cell| cell.marks.contains(mark)) {
            notes.push(format!("{mark} {meaning}"));
        }
    }
    Table {
        number: 1,
        title: "What each server costs and delivers".to_owned(),
        quantity: String::new(),
        headline: false,
        stub: vec!["delivery".to_owned(), "server".to_owned()],
        columns,
        rows,
        notes,
    }
}

fn cell(entrant: &Entrant<'_>, metric: &str) -> Option<Cell> {
    let summary = Summary::of(entrant.values(metric))?;
    let spread = (summary.max > summary.min).then_some((summary.min, summary.max));
    let text = |(low, high)| format!("{}–{}", number::sensible(low), number::sensible(high));
    Some(Cell {
        kind: Aspect::Measured,
        value: Some(summary.median),
        spread,
        text: number::sensible(summary.median),
        spread_text: spread.map(text),
        limit: None,
        marks: marks(&entrant.trials, metric),
        best: false,
    })
}

fn figure(contests: &[&Contest<'_>]) -> Figure {
    let mut panels = Vec::new();
    for criterion in &CRITERIA {
        let groups: Vec<(String, Vec<Bar>)> = contests
            .iter()
            .map(|contest| (contest.delivery.clone(), bars(criterion, contest)))
            .filter(|(_, bars)| !bars.is_empty())
            .collect();
        if groups.is_empty() {
            continue;
        }
        let say = |(name, bars): &(String, Vec<Bar>)| {
            let bars: Vec<String> =
                bars.iter().map(|bar| format!("{} {}", bar.label, bar.text)).collect();
            format!("{name}: {}", bars.join(", "))
        };
        let description = groups.iter().map(say).collect::<Vec<_>>().join(". ") + ".";
        let axis = Axis {
            title: "times the least".to_owned(),
            scale: Scale::Linear,
            range: None,
            from_zero: true,
            exact: true,
        };
        panels.push(Panel {
            title: criterion.title.to_owned(),
            description,
            file: format!("figures/figure-1-{}.svg", panels.len() + 1),
            plot: Plot::Bars(Bars { axis, groups }),
        });
    }
    Figure {
        number: 1,
        title: "Costs and delays by delivery, compared with the least".to_owned(),
        notes: vec![
            "Bars are medians; whiskers reach from the least to the most. Beside each bar is its \
             value."
                .to_owned(),
        ],
        panels,
    }
}

/// The servers that may win, each compared with the least.
fn bars(criterion: &Criterion, contest: &Contest<'_>) -> Vec<Bar> {
    let standings = criterion.standings(contest);
    let least = standings.first().map(|first| first.summary.median);
    let Some(least) = least.filter(|least| *least > 0.0) else { return vec![] };
    let bar = |standing: &Standing<'_>| {
        let Summary { median, min, max, .. } = standing.summary;
        let peer = &contest.study.peers[standing.entrant.peer];
        Bar {
            label: peer.title.clone(),
            style: Style { peer: peer.look, published: false },
            value: median / least,
            low: min / least,
            high: max / least,
            doubt: standing.doubt,
            text: number::sensible(median),
        }
    };
    standings.iter().map(bar).collect()
}
