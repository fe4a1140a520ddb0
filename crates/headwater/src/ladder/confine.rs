//! Confines ffmpeg, because it decodes input from strangers.
//!
//! The origin does not start ffmpeg directly. It starts its own program again, as `headwater
//! confine`. That process gives up everything that ffmpeg does not need ([`Limits`]) and then
//! becomes ffmpeg, which cannot take any of it back. So no code runs between `fork` and `exec`,
//! where little is safe.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, CpuSet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, sched_getaffinity, sched_setaffinity, set_capabilities,
    set_no_new_privs,
};

use super::calls;
use crate::config::{Ladder, Sandbox};
use crate::machine;

/// What ffmpeg may read and execute: programs, libraries, and files of the dynamic loader. Paths
/// that do not exist are skipped.
const READ: [&str; 13] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/etc/ld.so.cache",
    "/etc/ld.so.preload",
    "/dev/urandom",
    // The number of processors and the kinds of memory.
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/proc/cpuinfo",
];

/// What ffmpeg may also write to.
const WRITTEN: [&str; 1] = ["/dev/null"];

/// Landlock's rules as of Linux 6.12. An older kernel applies those that it knows.
const RULES: ABI = ABI::V6;

/// The variables of the origin's environment that ffmpeg gets.
const ENVIRONMENT: [&str; 2] = ["PATH", "LD_LIBRARY_PATH"];

/// Most open descriptors. Each rendition needs one, and libraries are opened one after the other.
const DESCRIPTORS: u64 = 64;

/// Address space beyond the memory limit, in bytes for each processor. It is for programs and
/// libraries, and for the 64 MiB that an allocator reserves for each thread. Memory that the
/// process could share with its children counts only here.
const ADDRESSES: u64 = 1 << 30;

/// Bytes of a thread's stack. Stacks count as memory, and encoders have many threads.
const STACK: u64 = 2 << 20;

/// What a ladder's process may use.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct Limits {
    /// Whether the kernel must be able to confine it.
    #[arg(long, value_enum)]
    pub sandbox: Sandbox,
    /// Files and folders that it may read, besides the system's.
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Bytes of memory.
    #[arg(long, value_name = "BYTES")]
    pub memory: u64,
    /// Number of processors; 0 is all.
    #[arg(long, value_name = "N")]
    pub cores: usize,
    /// Number of this turn. Each turn uses other processors than the turn before, if there are
    /// enough.
    #[arg(long, value_name = "N")]
    pub turn: usize,
}

impl Limits {
    /// Takes the limits from the configuration.
    pub(super) fn new(ladder: &Ladder, turn: usize) -> Self {
        Self {
            sandbox: ladder.sandbox,
            read: ladder.read.clone(),
            memory: ladder.memory.into(),
            cores: ladder.cores,
            turn,
        }
    }

    /// Makes the command that becomes `program` under these limits. The caller adds the program's
    /// arguments.
    pub(super) fn command(&self, program: &Path) -> Command {
        // The executable of this very process, even if its path now holds another file.
        let mut command = Command::new("/proc/self/exe");
        let sandbox = self.sandbox.to_string();
        command.arg("confine").args(["--sandbox", &sandbox]);
        for path in &self.read {
            command.arg("--read").arg(path);
        }
        let numbers = [
            ("--memory", self.memory),
            ("--cores", self.cores as u64),
            ("--turn", self.turn as u64),
        ];
        for (name, number) in numbers {
            command.args([name, &number.to_string()]);
        }
        command.arg("--").arg(program).env_clear();
        for name in ENVIRONMENT {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

/// Confines this process, which must have no other thread, and then becomes `program`. Returns only
/// if this fails.
pub fn run(limits: &Limits, program: &Path, arguments: &[OsString]) -> io::Error {
    match confine(limits, program) {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

fn confine(limits: &Limits, program: &Path) -> io::Result<()> {
    let cores = stay_on_cores(limits)?;
    let bounds = [
        (Resource::Data, limits.memory),
        (Resource::As, limits.memory.saturating_add(ADDRESSES * cores as u64)),
        (Resource::Stack, STACK),
        (Resource::Nofile, DESCRIPTORS),
        // ffmpeg writes to pipes, not to files.
        (Resource::Fsize, 0),
        (Resource::Core, 0),
    ];
    for (resource, most) in bounds {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    if limits.sandbox == Sandbox::Off {
        return Ok(());
    }
    let required = limits.sandbox == Sandbox::Require;
    let is_kept = keep_from_files(limits, program, required).map_err(io::Error::other)?;
    if required && !is_kept {
        return Err(io::Error::other("this kernel has no Landlock, ladder.sandbox requires it"));
    }
    keep_from_privileges()?;
    // The origin warned when it started if the kernel lacks this.
    if required || machine::has_seccomp() { calls::refuse() } else { Ok(()) }
}

/// Binds this process to `limits.cores` of the processors that it may use. Returns their number.
fn stay_on_cores(limits: &Limits) -> io::Result<usize> {
    let usable = sched_getaffinity(None)?;
    let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| usable.is_set(cpu)).collect();
    if limits.cores == 0 {
        return Ok(usable.len());
    }
    let mut chosen = CpuSet::new();
    for cpu in chosen_of(&usable, limits.cores, limits.turn) {
        chosen.set(cpu);
    }
    sched_setaffinity(None, &chosen)?;
    Ok(limits.cores.min(usable.len()))
}

/// Chooses `cores` of these processors; each turn takes the next ones.
fn chosen_of(usable: &[usize], cores: usize, turn: usize) -> impl Iterator<Item = usize> {
    let cores = cores.min(usable.len());
    // After as many turns as there are processors, the choice starts over.
    let first = turn % usable.len().max(1) * cores;
    (first..first + cores).map(move |at| usable[at % usable.len()])
}

/// Keeps the process from opening other files, using TCP, and signalling processes that it did not
/// start, as far as the kernel supports these rules. With `required`, the basic file rules must be
/// supported. Returns whether any rules are in force.
fn keep_from_files(limits: &Limits, program: &Path, required: bool) -> Result<bool, RulesetError> {
    let least = if required { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
    let read = AccessFs::from_read(RULES);
    let status = Ruleset::default()
        .set_compatibility(least)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(READ, read))?
        .add_rules(path_beneath_rules(&limits.read, read))?
        .add_rules(path_beneath_rules([program], read))?
        .add_rules(path_beneath_rules(WRITTEN, AccessFs::ReadFile | AccessFs::WriteFile))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// Gives up root's privileges for good: `no_new_privs` keeps `exec` from restoring them.
fn keep_from_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    // Without `SETPCAP` the bounding set cannot be reduced, but then it gives no way to gain a
    // capability either.
    if capabilities(None)?.effective.contains(CapabilitySet::SETPCAP) {
        let every = (0..u64::BITS).map(|at| CapabilitySet::from_bits_retain(1 << at));
        // Higher numbers are unknown to the kernel.
        for one in every.take_while(|&one| capability_is_in_bounding_set(one).is_ok()) {
            remove_capability_from_bounding_set(one)?;
        }
    }
    let none = CapabilitySet::empty();
    // This also clears the ambient capabilities, which children would inherit.
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_share_the_processors() {
        let of = |usable: &[usize], cores, turn| chosen_of(usable, cores, turn).collect::<Vec<_>>();
        let usable = [0, 1, 4, 5, 6];
        assert_eq!(of(&usable, 2, 0), [0, 1]);
        assert_eq!(of(&usable, 2, 1), [4, 5]);
        assert_eq!(of(&usable, 2, 2), [6, 0]);
        assert_eq!(of(&usable, 9, 3), [0, 1, 4, 5, 6]);
        assert_eq!(of(&usable, 1, usize::MAX).len(), 1);
        assert!(of(&[], 2, 0).is_empty());
    }
}
