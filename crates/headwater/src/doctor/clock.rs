//! The clock: whether it is right, and whether it is cheap to read.

use std::time::Duration;

use super::kernel_clock::State;
use super::{Check, Machine};

/// By how much the clock may be off. Players of DASH, and those that measure latency, rely on less than a second.
const MOST: Duration = Duration::from_secs(1);

/// Clocks that a process reads without a call of the kernel.
const CHEAP: [&str; 5] =
    ["tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase"];

pub(super) fn check_time(state: Option<State>) -> Check {
    const NAME: &str = "clock";
    let why = "Tokens and certificates are taken for expired or not yet valid, and players of DASH stay too far behind";
    let remedy =
        "timedatectl set-ntp true, or chronyd or ntpd; on a virtual machine, its host's clock";
    match state {
        None => {
            Check::ok(NAME, "whether it is synchronized cannot be asked here: look on the host")
        }
        Some(State { is_synchronized: false, .. }) => {
            Check::warning(NAME, "nothing synchronizes it", why, remedy)
        }
        Some(State { may_be_off, .. }) if may_be_off > MOST => {
            Check::warning(NAME, format!("it may be off by {may_be_off:.1?}"), why, remedy)
        }
        Some(State { may_be_off, .. }) => {
            Check::ok(NAME, format!("synchronized to {may_be_off:.1?}"))
        }
    }
}

pub(super) fn check_source(machine: &Machine) -> Check {
    const NAME: &str = "clock source";
    const FOLDER: &str = "sys/devices/system/clocksource/clocksource0";
    let Some(used) = machine.text(&format!("{FOLDER}/current_clocksource")) else {
        return Check::ok(NAME, "not known");
    };
    if CHEAP.contains(&used.as_str()) {
        return Check::ok(NAME, used);
    }
    let available = machine.text(&format!("{FOLDER}/available_clocksource")).unwrap_or_default();
    let better = available.split(' ').find(|name| CHEAP.contains(name));
    let remedy = match better {
        Some(better) => format!("echo {better} > /{FOLDER}/current_clocksource"),
        None => "the kernel's parameter clocksource=tsc tsc=reliable, if the processor's counter is steady".to_owned(),
    };
    let why = "Each look at the time is a call of the kernel, and event loops look many times for each viewer";
    Check::warning(NAME, used, why, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use crate::doctor::tests::machine;

    #[test]
    fn a_clock_that_nothing_keeps_right_is_told_of() {
        let state = |is_synchronized, millis| {
            Some(State { is_synchronized, may_be_off: Duration::from_millis(millis) })
        };
        for (state, level) in [
            (None, Level::Ok),
            (state(true, 20), Level::Ok),
            (state(true, 1001), Level::Warning),
            (state(false, 0), Level::Warning),
        ] {
            assert_eq!(check_time(state).level, level, "{state:?}");
        }
    }

    #[test]
    fn a_slow_source_is_told_of_with_a_better_one_if_there_is_any() {
        const USED: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        const OTHERS: &str = "sys/devices/system/clocksource/clocksource0/available_clocksource";
        let found = |files: &[(&str, &str)]| {
            let (_folder, machine) = machine(files);
            let check = check_source(&machine);
            (check.level, check.remedy.unwrap_or_default())
        };
        assert_eq!(found(&[]).0, Level::Ok);
        assert_eq!(found(&[(USED, "tsc\n"), (OTHERS, "tsc hpet acpi_pm\n")]).0, Level::Ok);
        let (level, remedy) = found(&[(USED, "hpet\n"), (OTHERS, "tsc hpet acpi_pm\n")]);
        assert_eq!(
            (level, remedy.starts_with("echo tsc > /sys/")),
            (Level::Warning, true),
            "{remedy}"
        );
        let (level, remedy) = found(&[(USED, "acpi_pm\n"), (OTHERS, "acpi_pm\n")]);
        assert_eq!((level, remedy.contains("clocksource=tsc")), (Level::Warning, true), "{remedy}");
    }
}
