//! Trials and their order, without a server.

use streamgauge::lab::plan::{Plan, Settings, Sweeps, cases};
use streamgauge::lab::record::{Parameters, Value};
use streamgauge::lab::scenario::Scenario;

use crate::support::scenario;

const LOAD: &str = r#"
title = "x"
[[load]]
name = "runs"
peers = ["a", "b", "c"]
job = "file"
path = "x"
with = "http"
arguments = ["{url}"]
"#;

fn read(more: &str) -> Scenario {
    scenario(&format!("{LOAD}{more}")).unwrap()
}

fn scaled(scale: f64) -> Settings {
    Settings { scale, ..Settings::default() }
}

fn folders(plan: &Plan<'_>) -> Vec<String> {
    let text = |path: &std::path::Path| path.to_str().unwrap().replace("trials/runs/", "");
    plan.trials.iter().map(|trial| text(&trial.folder)).collect()
}

fn numbers(of: &[(&str, f64)]) -> Parameters {
    of.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect()
}

#[test]
fn peers_take_turns_and_every_other_repetition_goes_backwards() {
    let scenario = read("repeat = 2\n[load.cases]\nrate = [10, 20]\n");
    let plan = Plan::new(&scenario, &Settings::default(), &|_, _| Some(true)).unwrap();
    assert_eq!(
        folders(&plan),
        [
            "rate=10/a/1",
            "rate=10/b/1",
            "rate=10/c/1",
            "rate=20/b/1",
            "rate=20/c/1",
            "rate=20/a/1",
            "rate=10/c/2",
            "rate=10/b/2",
            "rate=10/a/2",
            "rate=20/a/2",
            "rate=20/c/2",
            "rate=20/b/2",
        ]
    );
}

#[test]
fn peers_that_cannot_do_a_job_are_left_out_with_a_note_and_absent_ones_without() {
    let scenario = read("profile = true\n");
    let serves = |peer: &str, job: &str| match peer {
        "a" => Some(job == "file"),
        "b" => Some(false),
        _ => None,
    };
    let plan = Plan::new(&scenario, &Settings::default(), &serves).unwrap();
    assert_eq!(folders(&plan), ["case/a/1", "case/a/profile"]);
    assert_eq!(plan.notes, ["runs: b does not serve file"]);
    let asked = Settings { peers: Some(vec!["mine".to_owned()]), ..Settings::default() };
    let plan = Plan::new(&scenario, &asked, &|_, _| Some(true)).unwrap();
    assert_eq!(folders(&plan), ["case/mine/1", "case/mine/profile"]);
    let unknown = Settings { loads: vec!["walks".to_owned()], ..Settings::default() };
    let error = Plan::new(&scenario, &unknown, &serves).unwrap_err().to_string();
    assert_eq!(error, "there is no load \"walks\"");
}

const SCALED: &str = r#"
repeat = 10
[load.cases]
batches = [2, 4, 8, 16, 24]
duration = [60, 600]
[load.constants]
size = 50
[load.derive]
clients = "batches * size"
[load.scale]
duration = { least = 5 }
size = { least = 1, below = 0.1 }
"#;

#[test]
fn a_tenth_has_every_case_at_full_load_and_less_has_fewer_at_less() {
    let scenario = read(SCALED);
    let load = &scenario.loads[0];
    let whole = cases(load, 1.0).unwrap();
    assert_eq!(whole.len(), 10);
    assert_eq!(
        whole[0].parameters,
        numbers(&[("batches", 2.0), ("duration", 60.0), ("clients", 100.0)])
    );
    assert_eq!(whole[0].scaled, Parameters::new());

    let tenth = cases(load, 0.1).unwrap();
    assert_eq!(tenth.len(), 10);
    // Cases keep the study's parameters at any scale.
    assert_eq!(tenth[9].parameters, whole[9].parameters);
    assert_eq!(tenth[9].scaled, numbers(&[("duration", 60.0)]));

    // Three of five values, and one of two.
    let less = cases(load, 0.05).unwrap();
    let batches: Vec<_> = less.iter().map(|case| case.parameters["batches"].clone()).collect();
    assert_eq!(batches, [2.0, 8.0, 24.0].map(Value::Number));
    // The remaining cases keep their numbers from the study.
    let numbered: Vec<_> = less.iter().map(|case| (case.index, case.number)).collect();
    assert_eq!(numbered, [(0, 0), (1, 4), (2, 8)]);
    // 50 × 0.05 / 0.1, and 60 × 0.05 is below the minimum.
    assert_eq!(less[1].scaled, numbers(&[("duration", 5.0), ("size", 25.0), ("clients", 200.0)]));
    assert_eq!(less[1].values["size"], Value::Number(25.0));
    assert_eq!(cases(load, 0.001).unwrap().len(), 1);

    for (scale, repetitions) in [(1.0, 10), (0.25, 3), (0.02, 1)] {
        let plan = Plan::new(&scenario, &scaled(scale), &|_, _| Some(true)).unwrap();
        let last = plan.trials.iter().map(|trial| trial.repetition).max();
        assert_eq!(last, Some(repetitions), "{scale}");
    }
    for scale in [0.0, -1.0, f64::NAN] {
        assert!(Plan::new(&scenario, &scaled(scale), &|_, _| Some(true)).is_err());
    }
}

#[test]
fn a_sweep_ends_for_the_peer_and_the_repetition_that_failed() {
    let scenario = read(
        "until = \"saturated\"\nrepeat = 2\n[load.cases]\nkind = [\"x\", \"y\"]\nrate = [1, 2, 3]\n",
    );
    let plan = Plan::new(&scenario, &Settings::default(), &|_, _| Some(true)).unwrap();
    let mut sweeps = Sweeps::default();
    let ends = plan.trials.iter().find(|trial| trial.folder.ends_with("kind=x,rate=2/a/1"));
    sweeps.end(ends.unwrap());
    let over: Vec<_> = plan.trials.iter().filter(|trial| sweeps.is_over(trial)).collect();
    let [over] = over[..] else { panic!("{over:?}") };
    assert!(over.folder.ends_with("kind=x,rate=3/a/1"), "{}", over.folder.display());
}

#[test]
fn underivable_or_equal_cases_are_refused_with_the_reason() {
    for (more, reason) in [
        ("[load.derive]\nx = \"2 * y\"\n", "there is no parameter \"y\""),
        ("[load.constants]\ny = \"z\"\n[load.derive]\nx = \"2 * y\"\n", "y is not a number"),
        ("[load.cases]\nx = [\"a b\", \"a_b\"]\n", "two cases x=a_b"),
    ] {
        let scenario = read(more);
        let error = Plan::new(&scenario, &Settings::default(), &|_, _| Some(true)).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains("load \"runs\"") && error.contains(reason), "{error}");
    }
}
