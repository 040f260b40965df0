//! The system calls of every sandboxed daemon.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{Rules, START_RING, when};

/// Newer architectures have only `dup3`.
#[cfg(target_arch = "x86_64")]
pub(super) const DUP2: libc::c_long = libc::SYS_dup2;
#[cfg(not(target_arch = "x86_64"))]
pub(super) const DUP2: libc::c_long = libc::SYS_dup3;

/// Calls that are allowed with any arguments.
const ALWAYS: &[libc::c_long] = &[
    // Files, the connection and the control socket, all of them open already.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    libc::SYS_close,
    libc::SYS_fcntl,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_ppoll,
    // Files by path, restricted by landlock or by an empty mount namespace.
    libc::SYS_openat,
    libc::SYS_statx,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_unlinkat,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, time and signals of this process.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_geteuid,
];

/// Further calls of daemons with rings: their threads stay on their processors and raise their priority.
const RING_CALLS: &[libc::c_long] =
    &[libc::SYS_sched_setaffinity, libc::SYS_setpriority, libc::SYS_getpriority, libc::SYS_io_uring_enter];

/// epoll_wait, by the number that the C library uses.
#[cfg(target_arch = "x86_64")]
pub(super) const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_wait;
#[cfg(not(target_arch = "x86_64"))]
pub(super) const EPOLL_WAIT: libc::c_long = libc::SYS_epoll_pwait;

/// `PR_SET_VMA`: the C library names its memory.
const NAME_MEMORY: u64 = 0x5356_4d41;

const EXECUTABLE: u64 = libc::PROT_EXEC.cast_unsigned() as u64;

/// The rules for `others` and the calls of every daemon. The operations of a ring were restricted when it was created; existing
/// rings can only be enabled and entered.
pub(super) fn and(others: &[libc::c_long], rings: bool) -> Result<Rules, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let of_rings = if rings { RING_CALLS } else { &[] };
    let always = ALWAYS.iter().chain(others).chain(of_rings);
    let mut rules: Rules = always.map(|number| (*number, Vec::new())).collect();
    // No memory can become executable.
    rules.insert(libc::SYS_mmap, when(2, MaskedEq(EXECUTABLE), 0)?);
    rules.insert(libc::SYS_mprotect, when(2, MaskedEq(EXECUTABLE), 0)?);
    // New threads, but no new processes.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(libc::SYS_clone, when(0, MaskedEq(thread), thread)?);
    let this = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    rules.insert(libc::SYS_tgkill, when(0, Eq, this.into())?);
    let name = u64::from(libc::PR_SET_NAME.cast_unsigned());
    rules.insert(libc::SYS_prctl, [when(0, Eq, name)?, when(0, Eq, NAME_MEMORY)?].concat());
    // Limits can be read, but not set.
    let no_limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![no_limits])?]);
    if rings {
        rules.insert(libc::SYS_io_uring_register, when(1, Eq, START_RING)?);
    }
    Ok(rules)
}

/// Allows `ioctl` with these commands only.
pub(super) fn commands(commands: &[u64]) -> Result<Vec<SeccompRule>, BackendError> {
    let rules = commands.iter().map(|command| when(1, SeccompCmpOp::Eq, *command));
    Ok(rules.collect::<Result<Vec<_>, _>>()?.concat())
}
