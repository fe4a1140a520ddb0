//! How many descriptors the process may have: each connection takes one, and each file that is sent.

use super::{Check, Machine};
use crate::config::Config;
use crate::{rtmp, webrtc};

const NAME: &str = "descriptors";

/// Descriptors for all but the connections: listeners, event loops, files, ffmpeg's pipes, the store and its cache.
const OTHERS: u64 = 1_000;

/// What is enough for most machines where the configuration sets no limit.
const USUAL: u64 = 65_536;

pub(super) fn check(machine: &Machine, config: &Config) -> Check {
    let limits = machine.text("proc/self/limits").unwrap_or_default();
    let Some((soft, hard)) = open_files(&limits) else {
        return Check::ok(NAME, "the limit is not known: there is no /proc/self/limits");
    };
    // The origin raises its soft limit to the hard one, so only that counts.
    let (viewers, all) = needed(config);
    let raised =
        if soft < hard { format!(" ({soft} until headwater raises it)") } else { String::new() };
    let found = format!("{hard} may be open{raised}");
    let remedy = |wanted: u64| {
        format!(
            "LimitNOFILE={wanted} in the service's unit, --ulimit nofile={wanted} for a container, or `ulimit -n {wanted}` \
             before the start; or a lower http.max_connections, rtmp.max_players or rtmp.max_publishers"
        )
    };
    let why = "Each connection takes one, and so does each file that is sent. Without one, connections are not accepted";
    match (viewers, all) {
        (Some(viewers), _) if hard < viewers => {
            let found =
                format!("{found}, and the viewers that the configuration allows need {viewers}");
            Check::problem(NAME, found, why, remedy(all.unwrap_or(viewers).max(USUAL)))
        }
        (_, Some(all)) if hard < all => {
            let found =
                format!("{found}, and all connections that the configuration allows need {all}");
            Check::warning(NAME, found, why, remedy(all.max(USUAL)))
        }
        (_, None) if hard < USUAL => {
            let found = format!("{found}, and the configuration has no limit of connections");
            Check::warning(NAME, found, why, remedy(USUAL))
        }
        (_, Some(all)) => Check::ok(NAME, format!("{found}, and {all} are enough")),
        (_, None) => Check::ok(NAME, found),
    }
}

/// What viewers take, and what all peers take that the configuration allows; `None` where it has no limit.
fn needed(config: &Config) -> (Option<u64>, Option<u64>) {
    // Each limit, and how many descriptors one of what it limits takes.
    let limited = |limits: &[(usize, usize)]| {
        limits.iter().try_fold(OTHERS, |sum, &(limit, each)| {
            let limit =
                u64::try_from(limit.saturating_mul(each)).ok().filter(|&limit| limit > 0)?;
            Some(sum.saturating_add(limit))
        })
    };
    let http = config.http.max_connections;
    let by_tcp = config.webrtc.enabled && config.webrtc.tcp;
    let undecided = *rtmp::UNDECIDED.end();
    let mut all = vec![
        (http, 1),
        (config.rtmp.max_players, 1),
        (config.rtmp.max_publishers, 1),
        (undecided, 1),
    ];
    all.extend(by_tcp.then_some((config.webrtc.max_sessions, webrtc::CONNECTIONS_FOR_A_SESSION)));
    (limited(&[(http, 1), (config.rtmp.max_players, 1)]), limited(&all))
}

/// The soft and the hard limit of a process.
fn open_files(limits: &str) -> Option<(u64, u64)> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let mut values = line.split_ascii_whitespace().map(|value| match value {
        "unlimited" => Some(u64::MAX),
        value => value.parse().ok(),
    });
    Some((values.next()??, values.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    fn with(soft: &str, hard: &str, config: &Config) -> Check {
        let text = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max processes             95000                95000                processes\n\
             Max open files            {soft:20} {hard:20} files\n"
        );
        let (_folder, machine) = machine(&[("proc/self/limits", &text)]);
        check(&machine, config)
    }

    #[test]
    fn the_hard_limit_counts_against_what_the_configuration_allows() {
        let mut config = Config::default();
        // 16,000 viewers by HTTP and 4,000 by RTMP; 10,000 publishers, 4,096 who have not said what they want, and four
        // connections of each of 4,000 sessions of WebRTC over TCP.
        for (soft, hard, level) in [
            ("1024", "20999", Level::Problem),
            ("1024", "21000", Level::Warning),
            ("1024", "51095", Level::Warning),
            ("1024", "51096", Level::Ok),
            ("unlimited", "unlimited", Level::Ok),
        ] {
            let check = with(soft, hard, &config);
            assert_eq!(check.level, level, "{check}");
        }
        config.webrtc.tcp = false;
        assert_eq!(with("1024", "35096", &config).level, Level::Ok);
        config.http.max_connections = 0;
        assert_eq!(with("1024", "65535", &config).level, Level::Warning);
        assert_eq!(with("1024", "65536", &config).level, Level::Ok);
    }

    #[test]
    fn an_unknown_limit_is_no_problem() {
        let (_folder, machine) = machine(&[("proc/self/limits", "Max open files  many\n")]);
        assert_eq!(check(&machine, &Config::default()).level, Level::Ok);
    }
}
