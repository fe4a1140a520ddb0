//! What the machine offers: memory, and kernel features.

use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use landlock::{ABI, Access, AccessFs, Ruleset, RulesetAttr};

/// Bytes of memory that this process may use: the machine's total, or the lowest limit of its
/// control group and the groups above. `None` if neither is known.
pub(crate) fn memory() -> Option<u64> {
    memory_below(Path::new("/"))
}

/// Whether this kernel can restrict a process's access to files (Landlock).
pub(crate) fn has_landlock() -> bool {
    let rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1));
    let created = rules.and_then(Ruleset::create).map(Option::<std::os::fd::OwnedFd>::from);
    created.is_ok_and(|rules| rules.is_some())
}

/// Whether this kernel can restrict a process's system calls (seccomp).
pub(crate) fn has_seccomp() -> bool {
    rustix::thread::secure_computing_mode().is_ok()
}

/// Time that all processors together have spent on this process.
pub(crate) fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Bytes of this process's memory that are in RAM. `None` if the kernel does not tell.
pub(crate) fn resident() -> Option<u64> {
    let pages = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// The same as [`memory`], for a machine whose files are below `root`.
pub(crate) fn memory_below(root: &Path) -> Option<u64> {
    let total = total(&read_to_string(root.join("proc/meminfo")).unwrap_or_default());
    let limit = |group: &Group| {
        let file = if group.is_second { "memory.max" } else { "memory.limit_in_bytes" };
        // `max` means no limit; it does not parse.
        read_to_string(group.folder.join(file)).ok()?.trim().parse().ok()
    };
    let groups = groups(root, "memory");
    total.into_iter().chain(groups.iter().filter_map(limit)).min()
}

/// The processors whose time the control groups of this process allow it, as a number with a fraction, on a machine whose
/// files are below `root`. `None` if there is no limit.
pub(crate) fn processors_below(root: &Path) -> Option<f64> {
    let share = |group: &Group| {
        let text = |file: &str| read_to_string(group.folder.join(file)).ok();
        let (quota, period) = if group.is_second {
            let limit = text("cpu.max")?;
            let (quota, period) = limit.trim().split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        } else {
            (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?)
        };
        // `max` and -1 mean no limit; neither parses.
        let micros = |text: &str| text.trim().parse::<u32>().ok().filter(|&micros| micros > 0);
        Some(f64::from(micros(&quota)?) / f64::from(micros(&period)?))
    };
    groups(root, "cpu").iter().filter_map(share).min_by(f64::total_cmp)
}

/// The value of `MemTotal` in `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A folder of a control group.
struct Group {
    folder: PathBuf,
    /// Whether it is of version 2, whose files have other names.
    is_second: bool,
}

/// The groups of this process that `controller` limits, and the groups above them. In a container the named groups may be
/// invisible, and the mount is the container's own group. The last of each, the mount itself, covers this case.
fn groups(root: &Path, controller: &str) -> Vec<Group> {
    let mounted = root.join("sys/fs/cgroup");
    let lines = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    lines.lines().flat_map(|line| groups_of(&mounted, line, controller)).collect()
}

/// The groups of one line of `/proc/self/cgroup`.
fn groups_of(mounted: &Path, line: &str, controller: &str) -> Vec<Group> {
    // A line is number, controllers, path (cgroups(7)). Version 2 has number 0 and no controllers.
    let mut fields = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(path)) =
        (fields.next(), fields.next(), fields.next())
    else {
        return Vec::new();
    };
    let is_second = number == "0" && controllers.is_empty();
    let mounted = if is_second {
        mounted.to_owned()
    } else if controllers.split(',').any(|name| name == controller) {
        mounted.join(controller)
    } else {
        return Vec::new();
    };
    // The path begins with `/..` if the group is outside of what this process may see.
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let path: PathBuf = Path::new(path).components().filter(named).collect();
    let group = |path: &Path| Group { folder: mounted.join(path), is_second };
    path.ancestors().map(group).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder with these files, as a machine has them.
    pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    /// The result of [`memory`] for a machine with these files.
    pub(crate) fn machine(files: &[(&str, &str)]) -> Option<u64> {
        memory_below(folder(files).path())
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       24683520 kB\nMemFree:        19515392 kB\n");

    #[test]
    fn the_least_limit_that_holds_is_the_one() {
        let total = 24_683_520 * 1024;
        assert_eq!(machine(&[]), None);
        assert_eq!(machine(&[MEMINFO]), Some(total));
        // Version 2: the group itself has no limit, but a group above has.
        let second = ("proc/self/cgroup", "0::/system.slice/headwater.service\n");
        let own = "sys/fs/cgroup/system.slice/headwater.service/memory.max";
        let above = "sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(machine(&[MEMINFO, second, (own, "max\n")]), Some(total));
        assert_eq!(
            machine(&[MEMINFO, second, (own, "max\n"), (above, "1073741824\n")]),
            Some(1 << 30)
        );
        assert_eq!(
            machine(&[MEMINFO, second, (own, "4096\n"), (above, "1073741824\n")]),
            Some(4096)
        );
        // Version 1, in a container that sees its own group as the root of the mount.
        let first = (
            "proc/self/cgroup",
            "9:name=systemd:/\n4:cpu,memory:/docker/1f\n1:cpu:/docker/1f\n0::/\n",
        );
        let own = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(machine(&[MEMINFO, first, (own, "536870912\n")]), Some(512 << 20));
        // Version 1's value for no limit.
        assert_eq!(machine(&[MEMINFO, first, (own, "9223372036854771712\n")]), Some(total));
        // A group outside of the mount.
        let outside = ("proc/self/cgroup", "0::/../../other\n");
        assert_eq!(
            machine(&[MEMINFO, outside, ("sys/fs/cgroup/other/memory.max", "1\n")]),
            Some(1)
        );
        assert_eq!(machine(&[MEMINFO, ("proc/self/cgroup", "0\n::\n4:memory\n")]), Some(total));
    }

    #[test]
    fn the_least_share_of_processor_time_is_the_one() {
        let share = |files: &[(&str, &str)]| processors_below(folder(files).path());
        let second = ("proc/self/cgroup", "0::/pods/one\n");
        let own = |limit| ("sys/fs/cgroup/pods/one/cpu.max", limit);
        assert_eq!(share(&[]), None);
        assert_eq!(share(&[second, own("max 100000\n")]), None);
        assert_eq!(share(&[second, own("250000 100000\n")]), Some(2.5));
        let above = ("sys/fs/cgroup/pods/cpu.max", "50000 100000\n");
        assert_eq!(share(&[second, own("250000 100000\n"), above]), Some(0.5));
        // Version 1.
        let first = ("proc/self/cgroup", "4:cpu,cpuacct:/one\n");
        let period = ("sys/fs/cgroup/cpu/one/cpu.cfs_period_us", "100000\n");
        let quota = |micros| ("sys/fs/cgroup/cpu/one/cpu.cfs_quota_us", micros);
        assert_eq!(share(&[first, period, quota("-1\n")]), None);
        assert_eq!(share(&[first, period, quota("200000\n")]), Some(2.0));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory().is_some_and(|bytes| bytes > 64 << 20));
    }
}
