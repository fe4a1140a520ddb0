//! Memory and processors, as the machine and its control groups give them.

use super::{Check, Machine};
use crate::config::{Config, Size};
use crate::machine;

pub(super) fn check(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "live.memory";
    let Some(limit) = machine::memory_below(&machine.root) else {
        return Check::ok(NAME, "the memory of this machine is not known");
    };
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let live = match u64::from(config.live.memory) {
        0 => limit / 2,
        configured => configured,
    };
    let found = format!("{} of the {} that this process may use", mib(live), mib(limit));
    let why = "The kernel ends the server, and all viewers with it, when it takes more than it may";
    let half = Size::from_mib((limit / 2) >> 20);
    let remedy =
        format!("live.memory = \"{half}\", or more memory for the machine or its control group");
    if live > limit {
        return Check::problem(NAME, found, why, remedy);
    }
    if live > limit / 4 * 3 {
        return Check::warning(NAME, found, why, remedy);
    }
    let ladder = &config.ladder;
    let each = u64::from(ladder.memory);
    let programs = u64::try_from(ladder.max_streams).unwrap_or(u64::MAX).saturating_mul(each);
    if ladder.enabled && live.saturating_add(programs) > limit {
        let found = format!("{found}, and {} for ladder.max_streams of ffmpeg", mib(programs));
        let remedy = "a lower ladder.max_streams or ladder.memory, or a lower live.memory";
        return Check::warning(NAME, found, why, remedy);
    }
    Check::ok(NAME, found)
}

pub(super) fn check_processors(machine: &Machine, config: &Config) -> Check {
    const NAME: &str = "workers";
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    judge_processors(NAME, config.workers, cores, machine::processors_below(&machine.root))
}

/// Compares the event loops with the cores and with the share of processor time of the control groups.
fn judge_processors(name: &str, workers: usize, cores: usize, share: Option<f64>) -> Check {
    let loops = if workers == 0 { cores } else { workers };
    let mut found = format!("{loops} event loops on {cores} cores");
    let most = match share {
        Some(share) => {
            found += &format!(", of whose time the control group allows that of {share:.1}");
            share.floor().max(1.0)
        }
        None => f64::INFINITY,
    };
    if share.is_some_and(|share| share < 1.0) {
        let why = "When its share is used up, the server stands still for the rest of each period";
        return Check::warning(name, found, why, "a processor limit of at least 1 (cpu.max)");
    }
    let few = u32::try_from(loops).unwrap_or(u32::MAX);
    if loops > cores || f64::from(few) > most {
        let why = "Event loops that wait for each other's processor delay all their viewers";
        return Check::warning(name, found, why, "workers = 0, which is one for each core");
    }
    Check::ok(name, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:        8388608 kB\n");
    const GROUP: (&str, &str) = ("proc/self/cgroup", "0::/one\n");
    const LIMIT: (&str, &str) = ("sys/fs/cgroup/one/memory.max", "2147483648\n");

    fn level(files: &[(&str, &str)], config: &Config) -> Level {
        let (_folder, machine) = machine(files);
        check(&machine, config).level
    }

    #[test]
    fn live_memory_must_fit_into_what_the_process_may_use() {
        let mut config = Config::default();
        let files = [MEMINFO, GROUP, LIMIT];
        assert_eq!(level(&files, &config), Level::Ok);
        assert_eq!(level(&[], &config), Level::Ok);
        for (mib, expected) in [
            (1024, Level::Ok),
            (1536, Level::Ok),
            (1537, Level::Warning),
            (2048, Level::Warning),
            (2049, Level::Problem),
        ] {
            config.live.memory = Size::from_mib(mib);
            assert_eq!(level(&files, &config), expected, "{mib}");
        }
        config.live.memory = Size::from_mib(1024);
        config.ladder.enabled = true;
        assert_eq!(level(&files, &config), Level::Warning, "8 GiB for ffmpeg");
        config.ladder.max_streams = 1;
        assert_eq!(level(&files, &config), Level::Ok);
    }

    #[test]
    fn event_loops_must_not_share_processors() {
        for (workers, cores, share, expected) in [
            (0, 4, None, Level::Ok),
            (4, 4, None, Level::Ok),
            (5, 4, None, Level::Warning),
            (0, 2, Some(2.5), Level::Ok),
            (4, 4, Some(2.5), Level::Warning),
            (0, 1, Some(0.5), Level::Warning),
        ] {
            let check = judge_processors("workers", workers, cores, share);
            assert_eq!(check.level, expected, "{workers} {cores} {share:?}: {check}");
        }
    }
}
