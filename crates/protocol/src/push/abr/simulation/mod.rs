//! The rules against links that change.

mod links;
mod world;

use super::{Decision, Evidence, Rule, Seen, ThreeState, Throughput};
use links::Link;
use world::{Course, Descent, run};

/// The ladder of "Efficient and Adaptive Web-native Live Video Streaming" (2014), in bits per second.
const PAPER: [u64; 3] = [100_000, 1_200_000, 5_000_000];

/// One with smaller steps.
const FINE: [u64; 4] = [400_000, 1_000_000, 2_500_000, 5_000_000];

/// How viewers fare by the paper's rule, by throughput, and by what is used.
fn courses(link: &Link, ladder: &[u64]) -> [Course; 3] {
    [
        run(link, ladder, (Descent::Drained, false), &mut ThreeState::default()),
        run(link, ladder, (Descent::Told, false), &mut Throughput::default()),
        run(link, ladder, (Descent::Told, true), &mut Evidence::default()),
    ]
}

/// As `docs/push.md` has it.
fn table(links: &[Link]) -> String {
    let mut out = "| link | three-state | throughput | evidence |\n|---|---|---|---|\n".to_owned();
    for link in links {
        let cells = courses(link, &PAPER).map(|course| {
            let seconds = |time: u64| time as f64 / 1e6;
            format!(
                " {:.2} Mbit/s, {:.1} + {:.1} s, {}, {:.1} s ",
                course.quality as f64 / 1e6,
                seconds(course.stalled),
                seconds(course.skipped),
                course.switches,
                seconds(course.latency)
            )
        });
        out += &format!("| {}: {} |{}|\n", link.name, link.about, cells.join("|"));
    }
    out
}

#[test]
fn the_table_in_the_documentation_is_what_is_simulated() {
    let table = table(&links::all());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/push.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (before, rest) = text.split_once("<!-- simulated -->\n").unwrap();
    let (shown, after) = rest.split_once("<!-- /simulated -->").unwrap();
    if shown != table && std::env::var_os("UPDATE_DOCS").is_some() {
        let marked = format!("{before}<!-- simulated -->\n{table}<!-- /simulated -->{after}");
        std::fs::write(path, marked).unwrap();
    } else {
        assert!(shown == table, "run the tests once with UPDATE_DOCS=1\n{table}");
    }
}

#[test]
fn nobody_misses_more_than_by_the_papers_rule() {
    for ladder in [&PAPER[..], &FINE] {
        let (mut theirs, mut ours, mut worth) = (0, 0, 0.0);
        let links = links::all();
        for link in &links {
            let [paper, _, evidence] = courses(link, ladder);
            assert!(evidence.stalled <= paper.stalled, "{}: {evidence:?} {paper:?}", link.name);
            let misses = evidence.missing() <= paper.missing();
            assert!(misses || ladder != PAPER, "{}: {evidence:?} {paper:?}", link.name);
            theirs += paper.missing();
            ours += evidence.missing();
            worth += evidence.quality as f64 / link.most(ladder) as f64;
        }
        assert!(ours < theirs / 4, "{ours} {theirs}");
        // What the link carries at its best, at every moment, nobody can know.
        assert!(worth > 0.75 * links.len() as f64, "{worth}");
    }
}

#[test]
fn a_link_that_carries_a_rendition_is_left_alone() {
    for link in &links::all()[..3] {
        let [.., evidence] = courses(link, &PAPER);
        assert!(evidence.switches <= 1 && evidence.missing() == 0, "{}: {evidence:?}", link.name);
    }
}

#[test]
fn after_a_failed_try_the_next_comes_later() {
    // Bursts get through fast, but no more than 1.2 Mbit/s on average: a policer.
    let mut rule = Evidence::default();
    let mut tries = Vec::new();
    let (mut seen, mut rung) = (Seen { rtt: 20_000, min_rtt: 20_000, ..Seen::default() }, 1_usize);
    for turn in 1..2400_u64 {
        let asked = 250_000;
        seen.now = turn * asked;
        let bytes = FINE[rung] * asked / 8_000_000;
        seen.writes += 1;
        if rung > 1 {
            seen.queued += bytes / 2;
            seen.acknowledged += bytes / 2;
            seen.busy += asked;
        } else {
            seen.queued = 0;
            seen.acknowledged += bytes;
            seen.busy += 22_000;
        }
        match rule.decide(&seen, &FINE, rung) {
            Decision::Up(to) => {
                tries.extend((to == 2).then_some(seen.now));
                rung = to;
                rule.switched(seen.now);
            }
            Decision::Down { .. } => {
                rung = 1;
                rule.switched(seen.now);
            }
            Decision::Stay | Decision::SkipToLive => {}
        }
    }
    let gaps: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!((3..20).contains(&tries.len()), "{tries:?}");
    assert!(gaps.is_sorted() && gaps.last() > Some(&100_000_000), "{gaps:?}");
}

#[test]
fn what_is_sent_of_the_past_is_no_sign_of_slowness() {
    let mut rule = Evidence::default();
    // Four times as fast as it was made, with megabytes to go.
    let mut seen = Seen { catching_up: true, queued: 8 << 20, ..Seen::default() };
    for turn in 1..40 {
        seen.now = turn * 100_000;
        seen.acknowledged += PAPER[1] * 4 / 80;
        seen.unacknowledged = 60_000;
        seen.busy += 100_000;
        assert_eq!(rule.decide(&seen, &PAPER[..2], 1), Decision::Stay);
    }
    // A tenth as fast as it was made, and it goes down.
    let went_down = (40..80).any(|turn| {
        seen.now = turn * 100_000;
        seen.acknowledged += PAPER[1] / 800;
        seen.busy += 100_000;
        matches!(rule.decide(&seen, &PAPER[..2], 1), Decision::Down { to: 0, .. })
    });
    assert!(went_down);
}
