//! ffmpeg: whether it is there, has the encoders that are needed, and can be confined.

use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::{Check, PATIENCE};
use crate::config::{Config, Sandbox};
use crate::machine;

const NAME: &str = "ladder.ffmpeg";

pub(super) async fn check(config: &Config) -> Vec<Check> {
    let needed = needed(config);
    if needed.is_empty() {
        return Vec::new();
    }
    let program = match config.ladder.program() {
        Some(_) => judge(config, &needed, encoders(config).await),
        None => absent(config),
    };
    vec![program, judge_sandbox(config, machine::has_landlock(), machine::has_seccomp())]
}

/// The encoders that the configuration needs.
fn needed(config: &Config) -> Vec<&'static str> {
    let (ladder, webrtc) = (config.ladder.enabled, config.webrtc.transcodes());
    let video = (ladder || webrtc).then_some("libx264");
    video.into_iter().chain(webrtc.then_some("libopus")).collect()
}

/// What does not work without it. The server starts nevertheless if only viewers by WebRTC need it.
fn bad(config: &Config, found: String, remedy: &str) -> Check {
    if config.ladder.enabled {
        Check::problem(NAME, found, "The ladder of renditions cannot be made", remedy)
    } else {
        let why = "Viewers by WebRTC have no audio where the publisher sends AAC, and no video where it has B-frames";
        Check::warning(NAME, found, why, format!("{remedy}; or webrtc.transcode = false"))
    }
}

fn absent(config: &Config) -> Check {
    let found = format!("there is no program {}", config.ladder.ffmpeg.display());
    bad(config, found, "apt-get install ffmpeg, or its path as ladder.ffmpeg")
}

/// Asks the program for its encoders.
async fn encoders(config: &Config) -> Result<String, String> {
    let mut command = Command::new(&config.ladder.ffmpeg);
    command.args(["-hide_banner", "-encoders"]).stdin(Stdio::null()).kill_on_drop(true);
    match timeout(PATIENCE, command.output()).await {
        Ok(Ok(output)) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(Ok(output)) => Err(format!("it ends with {}", output.status)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it does not answer within {PATIENCE:?}")),
    }
}

fn judge(config: &Config, needed: &[&str], encoders: Result<String, String>) -> Check {
    let program = config.ladder.ffmpeg.display();
    let listed = match encoders {
        Ok(listed) => listed,
        Err(why) => {
            return bad(
                config,
                format!("{program}: {why}"),
                "an ffmpeg that runs, as ladder.ffmpeg",
            );
        }
    };
    // A line has flags, a name and a description.
    let has = |name: &&&str| {
        listed.lines().any(|line| line.split_ascii_whitespace().nth(1) == Some(**name))
    };
    let (there, missing): (Vec<&str>, Vec<&str>) = needed.iter().partition(|name| has(name));
    if missing.is_empty() {
        return Check::ok(NAME, format!("{program} has {}", there.join(" and ")));
    }
    let found = format!("{program} has no encoder {}", missing.join(" and no "));
    bad(config, found, "an ffmpeg with them, as distributions build it")
}

fn judge_sandbox(config: &Config, has_landlock: bool, has_seccomp: bool) -> Check {
    const NAME: &str = "ladder.sandbox";
    let missing = match (has_landlock, has_seccomp) {
        (true, true) => None,
        (false, true) => Some("Landlock"),
        (true, false) => Some("seccomp"),
        (false, false) => Some("Landlock and seccomp"),
    };
    let why = "ffmpeg decodes what strangers send, and could open files or reach the network";
    match (config.ladder.sandbox, missing) {
        (Sandbox::Off, _) => {
            Check::warning(NAME, "ffmpeg is not confined", why, "ladder.sandbox = \"auto\"")
        }
        (_, None) => Check::ok(NAME, "ffmpeg is confined by Landlock and seccomp"),
        (Sandbox::Auto, Some(missing)) => {
            let remedy = "a kernel from 5.13 on, with landlock in its parameter lsm=";
            Check::warning(NAME, format!("this kernel has no {missing}"), why, remedy)
        }
        (Sandbox::Require, Some(missing)) => {
            let remedy = "a kernel from 5.13 on, with landlock in its parameter lsm=; or ladder.sandbox = \"auto\"";
            Check::problem(
                NAME,
                format!("this kernel has no {missing}"),
                "The server does not start",
                remedy,
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    const LISTED: &str = "Encoders:\n V..... = Video\n ------\n V....D libx264              libx264 H.264\n \
         A....D libopus              libopus Opus\n";

    #[test]
    fn encoders_are_needed_for_what_is_configured() {
        let mut config = Config::default();
        assert_eq!(needed(&config), ["libx264", "libopus"]);
        config.webrtc.transcode = false;
        assert_eq!(needed(&config), [""; 0]);
        config.ladder.enabled = true;
        assert_eq!(needed(&config), ["libx264"]);
    }

    #[test]
    fn what_is_missing_is_named_and_a_ladder_cannot_be_without() {
        let mut config = Config::default();
        let listed = |text: &str| Ok(text.to_owned());
        let all = ["libx264", "libopus"];
        assert_eq!(judge(&config, &all, listed(LISTED)).level, Level::Ok);
        let without = LISTED.replace("libopus", "opus");
        let check = judge(&config, &all, listed(&without));
        assert_eq!(check.level, Level::Warning);
        assert_eq!(check.found, "ffmpeg has no encoder libopus");
        config.ladder.enabled = true;
        assert_eq!(judge(&config, &all, listed("")).level, Level::Problem);
        assert_eq!(judge(&config, &all, Err("no".to_owned())).level, Level::Problem);
        assert_eq!(absent(&config).level, Level::Problem);
    }

    #[test]
    fn a_sandbox_that_is_required_and_missing_is_a_problem() {
        let mut config = Config::default();
        for (sandbox, landlock, level) in [
            (Sandbox::Auto, true, Level::Ok),
            (Sandbox::Auto, false, Level::Warning),
            (Sandbox::Require, false, Level::Problem),
            (Sandbox::Off, true, Level::Warning),
        ] {
            config.ladder.sandbox = sandbox;
            assert_eq!(judge_sandbox(&config, landlock, true).level, level, "{sandbox} {landlock}");
        }
    }
}
