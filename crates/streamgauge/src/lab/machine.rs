//! The machine of a run, as run.json has it.

use std::fs;

use rustix::system::uname;

use super::record::Machine;

impl Machine {
    /// This machine; what cannot be found out is empty.
    pub fn read(server_cpus: &str, load_cpus: &str) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let name = uname();
        let meminfo = read("/proc/meminfo");
        let kib = after(&meminfo, "MemTotal:", ':')
            .and_then(|kib| kib.trim_end_matches("kB").trim().parse::<u64>().ok());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            processor: after(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
            processors: u32::try_from(cores).unwrap_or(u32::MAX),
            memory: kib.unwrap_or_default().saturating_mul(1024),
            kernel: format!(
                "{} {}",
                name.sysname().to_string_lossy(),
                name.release().to_string_lossy()
            ),
            system: after(&read("/etc/os-release"), "PRETTY_NAME=", '=')
                .map(|name| name.trim_matches('"').to_owned())
                .unwrap_or_default(),
            server_cpus: server_cpus.to_owned(),
            load_cpus: load_cpus.to_owned(),
        }
    }
}

/// What stands behind `separator` in the first line that begins with `key`.
fn after(text: &str, key: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(separator)?.1.trim().to_owned())
}

/// The processors that a list of taskset's names: `0,2-4` are four. None where it is not such a
/// list.
pub fn cpus(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<usize>().ok()?, last.trim().parse().ok()?);
        if first > last || last >= 4096 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::read("0", "");
        assert!(machine.processors > 0 && machine.memory > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
    }

    #[test]
    fn processors_are_those_that_taskset_would_use() {
        assert_eq!(cpus("0,2-4"), Some(vec![0, 2, 3, 4]));
        for list in ["", "x", "1-0", "0-99999"] {
            assert_eq!(cpus(list), None, "{list}");
        }
    }
}
