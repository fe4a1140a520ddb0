//! Compares the rules on links that change.

mod links;
mod world;

use super::{Decision, Evidence, Rule, Seen, ThreeState, Throughput};
use links::Link;
use world::{Course, Descent, run};

/// The ladder of "Efficient and Adaptive Web-native Live Video Streaming" (2014), in bits per
/// second.
const PAPER: [u64; 3] = [100_000, 1_200_000, 5_000_000];

/// A ladder with smaller steps.
const FINE: [u64; 4] = [400_000, 1_000_000, 2_500_000, 5_000_000];

/// Results of viewers with the paper's rule, with throughput, and with the rule in use.
fn courses(link: &Link, ladder: &[u64]) -> [Course; 3] {
    [
        run(link, ladder, (Descent::Drained, false), &mut ThreeState::default()),
        run(link, ladder, (Descent::Told, false), &mut Throughput::default()),
        run(link, ladder, (Descent::Told, true), &mut Evidence::default()),
    ]
}

/// The table of `docs/push.md`.
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
        // No rule can know the link's best rate at every moment.
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
    // Bursts get through fast, but only 1.2 Mbit/s on average, as with a policer.
    let mut rule = Evidence::default();
    let mut tries = Vec::new();
    let (mut seen, mut rendition) =
        (Seen { rtt: 20_000, min_rtt: 20_000, ..Seen::default() }, 1_usize);
    for turn in 1..2400_u64 {
        let asked = 250_000;
        seen.now = turn * asked;
        let bytes = FINE[rendition] * asked / 8_000_000;
        seen.writes += 1;
        if rendition > 1 {
            seen.queued += bytes / 2;
            seen.acknowledged += bytes / 2;
            seen.busy += asked;
        } else {
            seen.queued = 0;
            seen.acknowledged += bytes;
            seen.busy += 22_000;
        }
        match rule.decide(&seen, &FINE, rendition) {
            Decision::Up(to) => {
                tries.extend((to == 2).then_some(seen.now));
                rendition = to;
                rule.switched(seen.now);
            }
            Decision::Down { .. } => {
                rendition = 1;
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
fn catching_up_is_no_sign_of_slowness() {
    let mut rule = Evidence::default();
    // The viewer takes four times the stream's bitrate, with megabytes still queued.
    let mut seen = Seen { catching_up: true, queued: 8 << 20, ..Seen::default() };
    for turn in 1..40 {
        seen.now = turn * 100_000;
        seen.acknowledged += PAPER[1] * 4 / 80;
        seen.unacknowledged = 60_000;
        seen.busy += 100_000;
        assert_eq!(rule.decide(&seen, &PAPER[..2], 1), Decision::Stay);
    }
    // It takes a tenth of the bitrate, so the rule goes down.
    let went_down = (40..80).any(|turn| {
        seen.now = turn * 100_000;
        seen.acknowledged += PAPER[1] / 800;
        seen.busy += 100_000;
        matches!(rule.decide(&seen, &PAPER[..2], 1), Decision::Down { to: 0, .. })
    });
    assert!(went_down);
}

#[test]
fn segments_that_leave_no_calm_between_them_go_up_all_the_same() {
    let (mut rule, mut rendition, mut top) = (Evidence::default(), 0, None);
    let mut seen = Seen { rtt: 10_000, min_rtt: 10_000, ..Seen::default() };
    // Segments of a title, one per second, each through in at most 50 ms. Observed when one begins,
    // when it is through, and while nothing is due.
    for look in 0..24_u64 {
        let (second, state) = (look / 4, look % 4);
        seen.now = second * 1_000_000 + [0, 50_000, 400_000, 800_000][state as usize];
        seen.queued = if state == 0 { FINE[rendition] / 8 } else { 0 };
        seen.catching_up = state == 0;
        if state == 0 {
            seen.writes += 1;
        }
        if state == 1 {
            seen.acknowledged += FINE[rendition] / 8;
            seen.busy += 48_000;
        }
        if let Decision::Up(to) = rule.decide(&seen, &FINE, rendition) {
            rendition = to;
            rule.switched(seen.now);
            top = top.or((rendition == 3).then_some(seen.now));
        }
    }
    assert!(top.is_some_and(|at| at < 5_000_000), "{top:?}, at last {rendition}");
}

#[test]
fn a_viewer_of_live_segments_goes_up_and_stays_there() {
    // How long the link needs for a segment of the highest rendition: a busy viewer acknowledges
    // early or late, but no segment takes as long as it plays.
    const TAKES: [u64; 8] = [4_000, 60_000, 8_000, 250_000, 30_000, 400_000, 4_000, 150_000];
    let (mut rule, mut rendition, mut course) = (Evidence::default(), 1, Vec::new());
    let mut seen = Seen { rtt: 1_000, min_rtt: 200, ..Seen::default() };
    // A segment of one second is observed when it is written, and every 100 ms until the next one.
    for segment in 1..120_u64 {
        let bytes = PAPER[rendition] / 8;
        let takes = TAKES[segment as usize % TAKES.len()] * PAPER[rendition] / PAPER[2];
        let before = seen;
        seen.writes += 1;
        for look in 0..10 {
            let passed = look * 100_000;
            let through = bytes * passed.min(takes) / takes;
            seen.now = segment * 1_000_000 + passed;
            seen.acknowledged = before.acknowledged + through;
            seen.busy = before.busy + passed.min(takes);
            seen.queued = bytes - through;
            seen.catching_up = seen.queued > 0;
            match rule.decide(&seen, &PAPER, rendition) {
                Decision::Stay => {}
                decision => course.push((seen.now, decision)),
            }
        }
        if let Some((_, Decision::Up(to))) = course.last()
            && *to != rendition
        {
            rendition = *to;
            rule.switched(seen.now);
        }
    }
    assert!(matches!(course[..], [(at, Decision::Up(2))] if at < 10_000_000), "{course:?}");
}

#[test]
fn segments_far_apart_tell_what_the_link_carries() {
    let (mut rule, mut ups) = (Evidence::default(), Vec::new());
    let mut seen = Seen { rtt: 10_000, min_rtt: 10_000, ..Seen::default() };
    // Segments of 4 s, observed before each is written.
    for segment in 1..6 {
        seen.now = segment * 4_000_000;
        seen.writes += 1;
        seen.acknowledged += PAPER[1] / 2;
        seen.busy += 100_000;
        if rule.decide(&seen, &PAPER, 1) == Decision::Up(2) {
            ups.push(segment);
            rule.switched(seen.now);
        }
    }
    assert!(ups.first() <= Some(&3) && !ups.is_empty(), "{ups:?}");
}

#[test]
fn bytes_that_wait_at_each_look_need_not_wait_in_between() {
    let mut rule = Evidence::default();
    let mut seen = Seen { rtt: 20, min_rtt: 5, catching_up: true, ..Seen::default() };
    // Segments of a little less than 2 s, each observed while it is written, and through in 4 ms.
    for segment in 1..40 {
        seen.now = segment * 1_997_000;
        seen.queued = PAPER[2] / 8;
        seen.writes += 1;
        seen.acknowledged += PAPER[2] / 4;
        seen.busy += 4_000;
        assert_eq!(rule.decide(&seen, &PAPER, 2), Decision::Stay, "{segment}");
    }
}

#[test]
fn a_viewer_that_stops_reading_for_a_moment_is_no_failed_try() {
    let mut rule = Evidence::default();
    let mut seen = Seen { rtt: 20_000, min_rtt: 20_000, ..Seen::default() };
    let mut course = Vec::new();
    let mut rendition = 1_usize;
    for look in 1..120_u64 {
        seen.now = look * 100_000;
        let bytes = PAPER[rendition] / 80;
        // Between 3 and 4.5 s the viewer's receive window is full.
        if (30..45).contains(&look) {
            seen.queued += bytes;
            seen.unacknowledged = 60_000;
            seen.busy += 100_000;
            seen.viewer_limited += 100_000;
        } else {
            seen.acknowledged += bytes + seen.queued + seen.unacknowledged;
            (seen.queued, seen.unacknowledged) = (0, 0);
            seen.busy += 25_000;
            seen.writes += 1;
        }
        match rule.decide(&seen, &PAPER, rendition) {
            Decision::Stay => continue,
            Decision::Up(to) | Decision::Down { to, .. } => rendition = to,
            Decision::SkipToLive => {}
        }
        rule.switched(seen.now);
        course.push((seen.now, rendition));
    }
    assert!(matches!(course[..], [(up, 2)] if up < 3_000_000), "{course:?}");
}
