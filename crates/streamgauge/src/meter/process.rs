//! The resources that single processes use.

use std::collections::HashMap;
use std::time::Duration;

use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use procfs::process::{Process, Stat};
use schemars::JsonSchema;
use serde::Serialize;

use super::sending;

/// One process at one time. Counts begin at its start. Context switches are those of the threads
/// that it has now.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Usage {
    /// Process id.
    pub pid: i32,
    /// Name in the kernel (15 bytes at most).
    pub name: String,
    /// Processor time in user mode, in seconds, in steps of a clock tick (usually 10 ms).
    pub cpu_user: f64,
    /// Processor time in the kernel, in seconds: the rest of all that the process has used, which is known exactly. It may
    /// step back by a clock tick.
    pub cpu_system: f64,
    /// Processor time, in seconds, of the thread that has used most of those that the process has now. `None` if the
    /// kernel does not count it.
    pub cpu_thread: Option<f64>,
    /// Resident memory in bytes. Pages shared with other processes count in full.
    pub resident: u64,
    /// Proportional memory in bytes: a page shared by n processes counts 1/n. `None` if this
    /// program may not read it.
    pub proportional: Option<u64>,
    /// Resident anonymous memory in bytes: the memory that the process has for itself, mainly its
    /// heap. Files and shared memory that it maps are not included.
    pub anonymous: Option<u64>,
    /// Open file descriptors. `None` if this program may not count them.
    pub descriptors: Option<u64>,
    /// Number of threads.
    pub threads: u64,
    /// Threads that wait in a call that writes to a socket, because the peer takes no more: workers
    /// that slow clients hold. `None` if it is not known.
    pub sending: Option<u64>,
    /// Voluntary context switches: the process had nothing to do.
    pub switches_voluntary: u64,
    /// Involuntary context switches: the process was interrupted.
    pub switches_involuntary: u64,
}

impl Usage {
    /// Makes a process that has used nothing yet.
    pub(super) fn nothing(pid: i32, name: &str) -> Self {
        Self {
            pid,
            name: name.to_owned(),
            cpu_user: 0.0,
            cpu_system: 0.0,
            cpu_thread: None,
            resident: 0,
            proportional: None,
            anonymous: None,
            descriptors: None,
            threads: 0,
            sending: None,
            switches_voluntary: 0,
            switches_involuntary: 0,
        }
    }
}

/// The watched processes. Each is identified by its id and its start, so that a later process with
/// the same id is not mistaken for it.
#[derive(Debug)]
pub(super) struct Watched {
    roots: Vec<(i32, u64)>,
    with_children: bool,
    tick: f64,
}

impl Watched {
    /// Watches `pids` and, with `with_children`, the processes that they start.
    pub(super) fn new(pids: &[i32], with_children: bool) -> procfs::ProcResult<Self> {
        let begun = |pid: &i32| Ok((*pid, Process::new(*pid)?.stat()?.starttime));
        let roots = pids.iter().map(begun).collect::<procfs::ProcResult<_>>()?;
        Ok(Self { roots, with_children, tick: 1.0 / procfs::ticks_per_second() as f64 })
    }

    /// Returns the processes that still run, by rising id.
    pub(super) fn read(&self) -> Vec<Usage> {
        let mut found = Vec::new();
        for (pid, began) in &self.roots {
            let process = Process::new(*pid).and_then(|process| Ok((process.stat()?, process)));
            if let Ok((stat, process)) = process
                && stat.starttime == *began
            {
                found.push((process, stat));
            }
        }
        if self.with_children && !found.is_empty() {
            add_descendants(&mut found);
        }
        found.sort_by_key(|(_, stat)| stat.pid);
        found.dedup_by_key(|(_, stat)| stat.pid);
        found.iter().filter_map(|(process, stat)| self.usage(process, stat)).collect()
    }

    /// Reads a process; `None` if it has just ended or is a zombie.
    fn usage(&self, process: &Process, stat: &Stat) -> Option<Usage> {
        if matches!(stat.state, 'Z' | 'X') {
            return None;
        }
        let mut switches = (0, 0);
        let (mut threads, mut sending) = (0, Some(0));
        let mut busiest: Option<u64> = None;
        // The status of the process counts only the switches of its first thread.
        for task in process.tasks().ok()?.flatten() {
            let Ok(status) = task.status() else { continue };
            threads += 1;
            busiest = busiest.max(task.schedstat().ok().map(|used| used.sum_exec_runtime));
            let is_sending = sending::is_sending(stat.pid, task.tid);
            sending = sending.zip(is_sending).map(|(count, is)| count + u64::from(is));
            switches.0 += status.voluntary_ctxt_switches.unwrap_or_default();
            switches.1 += status.nonvoluntary_ctxt_switches.unwrap_or_default();
        }
        let cpu_user = stat.utime as f64 * self.tick;
        let cpu_system = processor_time(stat.pid)
            .map_or(stat.stime as f64 * self.tick, |all| all.as_secs_f64() - cpu_user);
        let proportional = process.smaps_rollup().ok().and_then(|rollup| {
            rollup.memory_map_rollup.0.first().and_then(|all| all.extension.map.get("Pss").copied())
        });
        let anonymous = process.status().ok().and_then(|status| status.rssanon);
        Some(Usage {
            pid: stat.pid,
            name: stat.comm.clone(),
            cpu_user,
            cpu_system,
            cpu_thread: busiest.map(|used| Duration::from_nanos(used).as_secs_f64()),
            resident: stat.rss.saturating_mul(procfs::page_size()),
            proportional,
            anonymous: anonymous.map(|kib| kib.saturating_mul(1024)),
            descriptors: process.fd_count().ok().map(|count| count as u64),
            threads,
            sending,
            switches_voluntary: switches.0,
            switches_involuntary: switches.1,
        })
    }
}

/// The processor time that a process has used, with that of its threads that have ended. `/proc` has only whole clock
/// ticks of it, and a server that uses little has few of them. `None` if the process has ended.
fn processor_time(pid: i32) -> Option<Duration> {
    clock_getcpuclockid(Pid::from_raw(pid)).ok()?.now().ok().map(Duration::from)
}

/// Adds all descendants of the processes in `found`.
fn add_descendants(found: &mut Vec<(Process, Stat)>) {
    let mut children: HashMap<i32, Vec<(Process, Stat)>> = HashMap::new();
    for process in procfs::process::all_processes().into_iter().flatten().flatten() {
        if let Ok(stat) = process.stat() {
            children.entry(stat.ppid).or_default().push((process, stat));
        }
    }
    let mut next = 0;
    while let Some((_, stat)) = found.get(next) {
        // Taken out, so that each process is found once even if /proc has changed in the meantime.
        let of_this = children.remove(&stat.pid);
        found.extend(of_this.into_iter().flatten());
        next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_id() {
        let own = i32::try_from(std::process::id()).unwrap();
        let watched = Watched::new(&[own], false).unwrap();
        assert_eq!(watched.read().len(), 1);
        let began = watched.roots[0].1;
        let other = Watched { roots: vec![(own, began + 1)], ..watched };
        assert!(other.read().is_empty());
        assert!(Watched::new(&[i32::MAX], false).is_err());
    }

    #[test]
    fn processor_time_is_known_better_than_in_clock_ticks() {
        let own = i32::try_from(std::process::id()).unwrap();
        let watched = Watched::new(&[own], false).unwrap();
        let clock = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
        };
        let (before, usage) = (clock(), watched.read().remove(0));
        // A sum of two fractions is rounded.
        let sum = usage.cpu_user + usage.cpu_system;
        assert!((before - 1e-9..=clock() + 1e-9).contains(&sum), "{before} {sum} {}", clock());
    }

    #[test]
    fn the_busiest_thread_is_told() {
        let thread = || {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            Duration::from_secs(time.tv_sec.unsigned_abs())
                + Duration::from_nanos(time.tv_nsec.unsigned_abs())
        };
        // So long that the kernel has counted it.
        while thread() < Duration::from_millis(30) {
            std::hint::spin_loop();
        }
        let own = i32::try_from(std::process::id()).unwrap();
        let usage = Watched::new(&[own], false).unwrap().read().remove(0);
        let busiest = usage.cpu_thread.unwrap();
        assert!(busiest >= 0.02, "{busiest}");
        assert!(busiest <= usage.cpu_user + usage.cpu_system + 1e-6, "{busiest} {usage:?}");
    }
}
