//! `streamgauge calibrate` as a program: every player is held against the bundled server.
//!
//! On a busy machine any time may be longer than what the server did. So of times these tests assert only that they
//! are no shorter. What is counted must be right on any machine.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::process::Command;
use std::time::Duration;

use common::{assert_published, document_of};
use serde_json::Value;
use testkit::Program;

/// Longest wait, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(120);

const PLAYERS: [&str; 9] = ["rtmp", "flv", "mp4", "file", "push", "ll-hls", "hls", "dash", "whep"];

/// Runs the program with these arguments and `--json`; returns the exit status and the document.
fn calibrate(arguments: &[&str]) -> (i32, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    let finished =
        Program::spawn(command.arg("calibrate").args(arguments).arg("--json")).wait(LIMIT);
    document_of(&finished)
}

/// The check of a player's figure.
#[track_caller]
fn check<'a>(document: &'a Value, player: &str, figure: &str) -> &'a Value {
    let checks = document["checks"].as_array().unwrap();
    let mut found =
        checks.iter().filter(|check| check["player"] == player && check["figure"] == figure);
    let check = found.next().unwrap_or_else(|| panic!("no {figure} of {player}: {document:#}"));
    assert!(found.next().is_none(), "two of {figure} of {player}");
    check
}

#[test]
fn what_is_missing_or_wrong_is_counted_exactly_by_every_player() {
    let (code, document) = calibrate(&["--injection", "hole", "--injection", "corruption"]);
    let assert_exact = |player: &str, figure: &str, right: f64| {
        let check = check(&document, player, figure);
        assert_eq!(check["reported"].as_f64(), Some(right), "{check:#}");
        assert_eq!((&check["error"], &check["bound"]), (&0.0.into(), &0.0.into()), "{check:#}");
    };
    for player in PLAYERS {
        assert_exact(player, "errors.corrupt", 1.0);
        assert_exact(player, "verified.matched", 60.0);
        // The index of a file lists just what is there.
        if player == "file" {
            continue;
        }
        assert_exact(player, "holes", 1.0);
        assert_exact(player, "verified.missing", 50.0);
        // The last picture before a hole lasts until the next one where its duration is not told, and so does the last
        // of all.
        let tells = !matches!(player, "rtmp" | "flv" | "whep");
        for (figure, untold) in [("missing", 0.04), ("longest_hole", 0.04), ("received", -0.08)] {
            let check = check(&document, player, figure);
            let error = check["error"].as_f64().unwrap();
            let right = if tells { 0.0 } else { untold };
            assert!((error - right).abs() < 0.002, "{check:#}");
        }
    }
    assert_eq!((code, &document["passed"], &document["failed"]), (0, &true.into(), &0.into()));
    assert_eq!(document["checks"].as_array().unwrap().len(), PLAYERS.len() * 7 - 5, "{document:#}");
}

#[test]
fn a_delay_is_reported_by_every_player_and_the_verdict_follows_from_the_errors() {
    let (code, document) = calibrate(&["--injection", "delay"]);
    let elapsed = document["elapsed"].as_f64().unwrap();
    let mut failed = 0;
    for player in PLAYERS {
        for figure in ["first_media", "startup"] {
            let check = check(&document, player, figure);
            assert_eq!(check["injected"], 1.0);
            let reported = check["reported"].as_f64().unwrap_or_else(|| panic!("{check:#}"));
            assert!((0.995..elapsed).contains(&reported), "{check:#}");
            let error = check["error"].as_f64().unwrap();
            let bound = check["bound"].as_f64().unwrap();
            assert_eq!(check["passed"], error <= bound, "{check:#}");
            failed += u64::from(error > bound);
            assert!(check["lags"]["viewer"].as_f64().unwrap() >= 0.0, "{check:#}");
            assert!(check["lags"]["server"].as_f64().unwrap() >= 0.0, "{check:#}");
        }
    }
    assert_eq!(document["failed"], failed, "{document:#}");
    assert_eq!((code, &document["passed"]), (i32::from(failed > 0), &(failed == 0).into()));
}

#[test]
fn only_the_chosen_players_are_calibrated() {
    let (_, document) = calibrate(&["--player", "push", "--player", "hls", "--injection", "hole"]);
    let checks = document["checks"].as_array().unwrap();
    let players: Vec<_> = checks.iter().map(|check| check["player"].as_str().unwrap()).collect();
    assert_eq!(players, [["push"; 5], ["hls"; 5]].as_flattened());
}

/// On a busy machine packets may come again too late: those are lost and not recovered.
#[test]
fn each_packet_that_is_lost_is_counted() {
    let (_, document) = calibrate(&["--injection", "loss"]);
    let reported = |figure| check(&document, "whep", figure)["reported"].as_f64().unwrap();
    let (recovered, lost) = (reported("rtp.recovered"), reported("rtp.lost"));
    assert!(recovered <= 20.0 && lost >= 5.0 && recovered + lost >= 25.0, "{document:#}");
}

/// A file has no hole, because its index lists just what is there.
#[test]
fn where_nothing_would_be_checked_nothing_passes() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(["calibrate", "--player", "file", "--injection", "hole"]);
    let finished = Program::spawn(&mut command).wait(LIMIT);
    assert_eq!(finished.status.code(), Some(2), "{finished:?}");
    assert!(finished.stderr.contains("none of the chosen injections"), "{finished:?}");
}

#[test]
fn the_table_has_a_line_for_every_figure() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_streamgauge"));
    command.args(["calibrate", "--player", "rtmp", "--injection", "corruption"]);
    let finished = Program::spawn(&mut command).wait(LIMIT);
    let text = String::from_utf8(finished.stdout).unwrap();
    assert_eq!(finished.status.code(), Some(0), "{text}");
    for figure in ["errors.corrupt", "verified.matched"] {
        assert!(text.lines().any(|line| line.contains("rtmp") && line.contains(figure)), "{text}");
    }
    assert!(text.ends_with("calibrated\n"), "{text}");
}

#[test]
fn the_published_schema_is_that_of_the_document() {
    assert_published(
        "calibrate",
        &schemars::schema_for!(streamgauge::calibrate::document::Document),
    );
}
