//! How TCP shares a link, and how much waits in sockets.

use http::net::UNRECEIVED;

use super::{Check, Machine};
use crate::config::Config;

/// What a viewer who is 100 ms away needs at 300 Mbit/s; also the kernel's own default on machines with some memory.
const UNSENT: u64 = 4 << 20;

pub(super) fn check(machine: &Machine, config: &Config) -> Vec<Check> {
    let datagrams = config.webrtc.enabled.then(|| received(machine)).flatten();
    let checks =
        [congestion(machine), pacing(machine), pauses(machine), unsent(machine), datagrams];
    checks.into_iter().flatten().collect()
}

const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

fn congestion(machine: &Machine) -> Option<Check> {
    let used = machine.text("proc/sys/net/ipv4/tcp_congestion_control")?;
    if used.starts_with("bbr") {
        return Some(Check::ok(CONGESTION, used));
    }
    let available = machine.text("proc/sys/net/ipv4/tcp_available_congestion_control");
    let is_loaded = available.is_some_and(|names| names.split(' ').any(|name| name == "bbr"));
    let load = if is_loaded { "" } else { "modprobe tcp_bbr && " };
    let why = "On links that lose packets, mobile ones above all, BBR gives viewers several times the rate";
    Some(Check::warning(CONGESTION, used, why, format!("{load}sysctl -w {CONGESTION}=bbr")))
}

fn pacing(machine: &Machine) -> Option<Check> {
    const NAME: &str = "net.core.default_qdisc";
    let found = machine.text("proc/sys/net/core/default_qdisc")?;
    let used = machine.text("proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    Some(if found != "fq" && used.starts_with("bbr") {
        let why = "BBR paces. Without fq it does so by a timer for each connection, which costs processor and accuracy";
        let remedy = "sysctl -w net.core.default_qdisc=fq, then `tc qdisc replace dev INTERFACE root fq` or a restart";
        Check::warning(NAME, found, why, remedy)
    } else {
        Check::ok(NAME, found)
    })
}

/// Between two parts of a live stream, a connection is idle for longer than its timer of retransmission.
fn pauses(machine: &Machine) -> Option<Check> {
    const NAME: &str = "net.ipv4.tcp_slow_start_after_idle";
    let found = machine.number("proc/sys/net/ipv4/tcp_slow_start_after_idle")?;
    let used = machine.text("proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    Some(if found > 0 && !used.starts_with("bbr") {
        let why = "After each pause between live parts, connections begin slowly again, and parts take longer to viewers who \
                   are far away. BBR does not";
        Check::warning(NAME, found, why, format!("sysctl -w {NAME}=0"))
    } else {
        Check::ok(NAME, found)
    })
}

fn unsent(machine: &Machine) -> Option<Check> {
    const NAME: &str = "net.ipv4.tcp_wmem";
    // Three numbers: the least, the default and the most of a connection.
    let most = machine.number("proc/sys/net/ipv4/tcp_wmem")?;
    Some(if most < UNSENT {
        let found = format!("at most {most} bytes of a connection are on their way");
        let why = "Viewers who are far away get less than their link carries";
        Check::warning(NAME, found, why, format!("sysctl -w {NAME}='4096 16384 {UNSENT}'"))
    } else {
        Check::ok(NAME, format!("at most {most} bytes of a connection"))
    })
}

fn received(machine: &Machine) -> Option<Check> {
    const NAME: &str = "net.core.rmem_max";
    let most = machine.number("proc/sys/net/core/rmem_max")?;
    Some(if most < UNRECEIVED as u64 {
        let found = format!("{most}, and the sockets of WebRTC ask for {UNRECEIVED}");
        let why = "When the machine is busy for a moment, packets of publishers by WHIP get lost";
        Check::warning(NAME, found, why, format!("sysctl -w {NAME}={UNRECEIVED}"))
    } else {
        Check::ok(NAME, most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    const USED: &str = "proc/sys/net/ipv4/tcp_congestion_control";
    const AVAILABLE: &str = "proc/sys/net/ipv4/tcp_available_congestion_control";
    const QUEUE: &str = "proc/sys/net/core/default_qdisc";

    fn found(files: &[(&str, &str)], config: &Config) -> Vec<(Level, String)> {
        let (_folder, machine) = machine(files);
        let checks = check(&machine, config).into_iter();
        checks.map(|check| (check.level, check.remedy.unwrap_or_default())).collect()
    }

    #[test]
    fn bbr_is_asked_for_and_needs_fq() {
        let config = Config::default();
        let bbr = "sysctl -w net.ipv4.tcp_congestion_control=bbr";
        let (ok, none) = (Level::Ok, String::new);
        assert_eq!(
            found(
                &[(USED, "cubic\n"), (AVAILABLE, "reno cubic bbr\n"), (QUEUE, "fq_codel\n")],
                &config
            ),
            [(Level::Warning, bbr.to_owned()), (ok, none())]
        );
        assert_eq!(
            found(&[(USED, "cubic\n"), (AVAILABLE, "reno cubic\n")], &config),
            [(Level::Warning, format!("modprobe tcp_bbr && {bbr}"))]
        );
        let with_bbr = found(&[(USED, "bbr\n"), (QUEUE, "pfifo_fast\n")], &config);
        assert_eq!((with_bbr[0].0, with_bbr[1].0), (ok, Level::Warning));
        assert!(with_bbr[1].1.starts_with("sysctl -w net.core.default_qdisc=fq, "), "{with_bbr:?}");
        assert_eq!(
            found(&[(USED, "bbr\n"), (QUEUE, "fq\n")], &config),
            [(ok, none()), (ok, none())]
        );
    }

    #[test]
    fn pauses_matter_without_bbr() {
        const PAUSES: &str = "proc/sys/net/ipv4/tcp_slow_start_after_idle";
        let last = |used, value| {
            found(&[(USED, used), (PAUSES, value)], &Config::default()).pop().unwrap()
        };
        let remedy = "sysctl -w net.ipv4.tcp_slow_start_after_idle=0";
        assert_eq!(last("cubic\n", "1\n"), (Level::Warning, remedy.to_owned()));
        for (used, value) in [("cubic\n", "0\n"), ("bbr\n", "1\n")] {
            assert_eq!(last(used, value), (Level::Ok, String::new()), "{used}");
        }
    }

    #[test]
    fn small_buffers_are_told_of_where_they_matter() {
        const SENT: &str = "proc/sys/net/ipv4/tcp_wmem";
        const RECEIVED: &str = "proc/sys/net/core/rmem_max";
        let mut config = Config::default();
        let small = [(SENT, "4096\t16384\t1000000\n"), (RECEIVED, "212992\n")];
        let remedies = found(&small, &config);
        assert_eq!(remedies[0].1, "sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'");
        assert_eq!(remedies[1].1, "sysctl -w net.core.rmem_max=4194304");
        config.webrtc.enabled = false;
        assert_eq!(found(&small, &config).len(), 1);
        let large = found(&[(SENT, "4096\t16384\t4194304\n")], &config);
        assert_eq!(large[0].0, Level::Ok);
    }
}
