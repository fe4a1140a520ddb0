//! System calls that seccomp refuses to the ladder's ffmpeg.
//!
//! Transcoding needs memory, threads, and reads and writes of open descriptors. The calls listed
//! here are refused whatever user the origin runs as, even root. Landlock decides which files can
//! be opened. But most of the calls here take a path without opening it, or reach other processes.

use std::io;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter, sock_filter,
};

/// Calls that `libc` does not have yet. From 424 on, numbers are the same on every architecture.
const SYS_FCHMODAT2: libc::c_long = 452;
const SYS_SETXATTRAT: libc::c_long = 463;
const SYS_REMOVEXATTRAT: libc::c_long = 466;
const SYS_OPEN_TREE_ATTR: libc::c_long = 467;
const SYS_FILE_SETATTR: libc::c_long = 469;

/// The first call number that was not in use when this list was made.
const UNKNOWN: libc::c_long = 470;

/// Calls that are refused whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    // Changes of files: names, owners, permissions, times and attributes.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_SETATTR,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_truncate,
    // Ways to files that Landlock does not control: handles, notifications, and flushes to disk.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_sync,
    libc::SYS_syncfs,
    // Sockets of every family, and io_uring, which can open sockets itself.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Access to other processes: memory, descriptors, priority and signals.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_kcmp,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_ioprio_set,
    // The origin ends ffmpeg by its process group, so ffmpeg must stay in it.
    libc::SYS_setpgid,
    libc::SYS_setsid,
    // Objects that outlive the process. Other programs' objects have numbers that can be guessed.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    // The machine and its kernel.
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
];

/// Calls that only some architectures have. Newer calls above replace them.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_unlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_mknod,
    libc::SYS_inotify_init,
    libc::SYS_iopl,
    libc::SYS_ioperm,
];
/// `renameat`, which `libc` does not have.
#[cfg(target_arch = "aarch64")]
const OLDER: &[libc::c_long] = &[38];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLDER: &[libc::c_long] = &[];

/// Refused flags of `clone`. In a namespace of its own the process could act as root;
/// `CLONE_PARENT` would make its children the origin's.
const CLONED: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_PARENT,
];

/// Requests that change attributes of a file that is open for reading only. `libc` does not have
/// `FS_IOC_FSSETXATTR`.
const ATTRIBUTES: [u32; 2] = [0x4008_6602, 0x401c_5820];

/// Makes the kernel refuse these calls to the calling thread, also after `exec`, for good.
pub(super) fn refuse() -> io::Result<()> {
    let architecture = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let listed = REFUSED.iter().chain(OLDER).map(|&call| (call, Vec::new()));
    let filter = refused_by_argument().and_then(|some| {
        SeccompFilter::new(
            listed.chain(some).collect(),
            SeccompAction::Allow,
            // The error is that of a missing permission. Libraries that only try a call go on
            // without it.
            SeccompAction::Errno(libc::EPERM.unsigned_abs()),
            architecture,
        )
    });
    let filter: BpfProgram = filter.and_then(TryInto::try_into).map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)?;
    apply_filter(&absent()).map_err(io::Error::other)
}

/// Calls that are refused if one of their rules matches.
fn refused_by_argument() -> Result<Vec<(libc::c_long, Vec<SeccompRule>)>, BackendError> {
    let rule = |argument, operator, value: u32| {
        SeccompRule::new(vec![SeccompCondition::new(argument, Dword, operator, value.into())?])
    };
    let is_not = |argument, value| rule(argument, SeccompCmpOp::Ne, value);
    let is = |argument, value: u32| rule(argument, SeccompCmpOp::Eq, value);
    let has = |bit: libc::c_int| {
        let bit = bit.unsigned_abs();
        rule(0, SeccompCmpOp::MaskedEq(bit.into()), bit)
    };
    let any = |rules: Vec<Result<SeccompRule, BackendError>>| {
        rules.into_iter().collect::<Result<Vec<_>, _>>()
    };
    Ok(vec![
        (libc::SYS_clone, any(CLONED.into_iter().map(has).collect())?),
        // The process keeps its id when it becomes ffmpeg. ffmpeg uses this call to abort itself.
        (libc::SYS_tgkill, any(vec![is_not(0, std::process::id())])?),
        // 0 is the process itself.
        (libc::SYS_prlimit64, any(vec![is_not(0, 0)])?),
        (libc::SYS_setpriority, any(vec![is_not(0, libc::PRIO_PROCESS), is_not(1, 0)])?),
        // These would choose a process that gets a signal when a descriptor becomes readable.
        (libc::SYS_fcntl, any(vec![is(1, F_SETOWN), is(1, F_SETOWN_EX)])?),
        (libc::SYS_ioctl, any(ATTRIBUTES.map(|request| is(1, request)).into())?),
    ])
}

const F_SETOWN: u32 = 8;
const F_SETOWN_EX: u32 = 15;

/// Answers like a kernel that lacks the call. This is for `clone3`: its flags are in memory, which
/// no filter can read, and libraries fall back to `clone`. It is also for all calls newer than this
/// list. On x86-64 this includes the x32 ABI, whose numbers are larger than all others.
fn absent() -> [sock_filter; 5] {
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const IF_NOT_BELOW: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // Codes fit into 16 bits, and call numbers are not negative.
    let code = |code: u32, k: u32, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    let number = |call: libc::c_long| call as u32;
    [
        // The call's number is the first field of the data.
        code(LOAD, 0, 0, 0),
        code(IF_NOT_BELOW, number(UNKNOWN), 2, 0),
        code(IF_EQUAL, number(libc::SYS_clone3), 1, 0),
        code(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0),
        code(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs(), 0, 0),
    ]
}
