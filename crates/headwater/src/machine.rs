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
fn memory_below(root: &Path) -> Option<u64> {
    let total = total(&read_to_string(root.join("proc/meminfo")).unwrap_or_default());
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| limits(&root.join("sys/fs/cgroup"), line));
    total.into_iter().chain(limits).min()
}

/// The value of `MemTotal` in `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of one line of `/proc/self/cgroup`: those of a group and of the groups above it. In a
/// container the named groups may be invisible, and the mount is the container's own group. The
/// last candidate, the mount itself, covers this case.
fn limits(mounted: &Path, line: &str) -> Vec<u64> {
    // A line is number, controllers, path (cgroups(7)). Version 2 has number 0 and no controllers.
    let mut fields = line.splitn(3, ':');
    let (Some(number), Some(controllers), Some(path)) =
        (fields.next(), fields.next(), fields.next())
    else {
        return Vec::new();
    };
    let (mounted, file) = if number == "0" && controllers.is_empty() {
        (mounted.to_owned(), "memory.max")
    } else if controllers.split(',').any(|controller| controller == "memory") {
        (mounted.join("memory"), "memory.limit_in_bytes")
    } else {
        return Vec::new();
    };
    // The path begins with `/..` if the group is outside of what this process may see.
    let named = |part: &Component<'_>| matches!(part, Component::Normal(_));
    let path: PathBuf = Path::new(path).components().filter(named).collect();
    let limit = |group: &Path| {
        let text = read_to_string(mounted.join(group).join(file)).ok()?;
        // `max` means no limit; it does not parse.
        text.trim().parse().ok()
    };
    path.ancestors().filter_map(limit).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The result of [`memory`] for a machine with these files.
    pub(crate) fn machine(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        memory_below(root.path())
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
    fn this_machine_has_some() {
        assert!(memory().is_some_and(|bytes| bytes > 64 << 20));
    }
}
