//! Limits of the kernel that connections and memory meet.

use http::net::BACKLOG;

use super::{Check, Machine};
use crate::config::Config;

/// The kernel's own default. Windows of live streams, stacks of threads and the allocator take areas.
const AREAS: u64 = 65_530;

pub(super) fn check(machine: &Machine, config: &Config) -> Vec<Check> {
    let checks = [areas(machine), backlog(machine), tracked(machine, config)];
    checks.into_iter().flatten().collect()
}

fn areas(machine: &Machine) -> Option<Check> {
    const NAME: &str = "vm.max_map_count";
    let areas = machine.number("proc/sys/vm/max_map_count")?;
    Some(if areas < AREAS {
        let why = "Where a process has no more areas of memory, no thread starts and no stream finds room";
        Check::warning(NAME, areas, why, format!("sysctl -w {NAME}={AREAS}"))
    } else {
        Check::ok(NAME, areas)
    })
}

fn backlog(machine: &Machine) -> Option<Check> {
    const NAME: &str = "net.core.somaxconn";
    let most = machine.number("proc/sys/net/core/somaxconn")?;
    let wanted = BACKLOG.unsigned_abs();
    Some(if most < u64::from(wanted) {
        let found = format!("{most}, and headwater asks for {wanted}");
        let why = "When many viewers come at once, connections beyond it are lost and tried again a second later";
        Check::warning(NAME, found, why, format!("sysctl -w {NAME}={wanted}"))
    } else {
        Check::ok(NAME, most)
    })
}

/// The table of a firewall that follows connections. Packets of a new connection are dropped while it is full.
fn tracked(machine: &Machine, config: &Config) -> Option<Check> {
    const NAME: &str = "net.netfilter.nf_conntrack_max";
    let most = machine.number("proc/sys/net/netfilter/nf_conntrack_max")?;
    let viewers = config.http.max_connections.saturating_add(config.rtmp.max_players);
    // Connections that have ended stay in it for a while.
    let wanted = u64::try_from(viewers).unwrap_or(u64::MAX).saturating_mul(2);
    Some(if most < wanted {
        let found =
            format!("{most}, and twice the viewers that the configuration allows are {wanted}");
        let why = "The firewall drops the packets of new connections while its table is full";
        Check::warning(NAME, found, why, format!("sysctl -w {NAME}={}", wanted.next_power_of_two()))
    } else {
        Check::ok(NAME, most)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    fn levels(files: &[(&str, &str)]) -> Vec<(String, Level)> {
        let (_folder, machine) = machine(files);
        let checks = check(&machine, &Config::default());
        checks.into_iter().map(|check| (check.name, check.level)).collect()
    }

    #[test]
    fn limits_that_are_too_low_are_told_with_what_raises_them() {
        let found = |areas, backlog, tracked| {
            levels(&[
                ("proc/sys/vm/max_map_count", areas),
                ("proc/sys/net/core/somaxconn", backlog),
                ("proc/sys/net/netfilter/nf_conntrack_max", tracked),
            ])
            .into_iter()
            .map(|(_, level)| level)
            .collect::<Vec<_>>()
        };
        assert_eq!(found("65530\n", "4096\n", "40000\n"), [Level::Ok; 3]);
        assert_eq!(found("65529\n", "128\n", "39999\n"), [Level::Warning; 3]);
        let (_folder, machine) = machine(&[("proc/sys/net/core/somaxconn", "128\n")]);
        let [check] = &check(&machine, &Config::default())[..] else { panic!("one is known") };
        assert_eq!(check.remedy.as_deref(), Some("sysctl -w net.core.somaxconn=4096"));
    }

    #[test]
    fn what_is_not_there_is_not_told_of() {
        assert_eq!(levels(&[]), []);
    }
}
