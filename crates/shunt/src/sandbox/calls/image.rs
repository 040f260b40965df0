//! What who serves an image may call. `allowed.txt` beside this says why, and the tests compare the two.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{Image, Rules, when};

/// Calls that are allowed whatever their arguments are.
const ALWAYS: &[libc::c_long] = &[
    // The image, the connection and the control socket, all of them open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_splice,
    libc::SYS_pipe2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
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
    libc::SYS_getsockname,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    // Files: landlock says which.
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    libc::SYS_statx,
    libc::SYS_newfstatat,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    libc::SYS_unlinkat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads, time and signals of our own.
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
    libc::SYS_sched_setaffinity,
    libc::SYS_setpriority,
    libc::SYS_getpriority,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_uname,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_getegid,
    libc::SYS_getgid,
];

/// `PR_SET_VMA`: the C library names its memory.
const NAME_MEMORY: u64 = 0x5356_4d41;
/// Starting a ring that was made disabled: `IORING_REGISTER_ENABLE_RINGS`.
const START_RING: u64 = 12;

/// Commands to `/dev/fuse` and to the disk: `FUSE_DEV_IOC_CLONE`, `BLKDISCARD`; and `FIONBIO`, by which sockets are made to
/// wait or not.
const COMMANDS: [u64; 3] = [0x8004_e500, 0x1277, 0x5421];

pub(super) fn allowed(image: Image) -> Result<Rules, BackendError> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let mut rules: Rules = ALWAYS.iter().map(|number| (*number, Vec::new())).collect();
    // Memory never becomes a program.
    let executable = u64::from(libc::PROT_EXEC.cast_unsigned());
    rules.insert(libc::SYS_mmap, when(2, MaskedEq(executable), 0)?);
    rules.insert(libc::SYS_mprotect, when(2, MaskedEq(executable), 0)?);
    // Threads, not processes.
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    rules.insert(libc::SYS_clone, when(0, MaskedEq(thread), thread)?);
    let this = rustix::process::getpid().as_raw_nonzero().get().cast_unsigned();
    rules.insert(libc::SYS_tgkill, when(0, Eq, this.into())?);
    let name = u64::from(libc::PR_SET_NAME.cast_unsigned());
    rules.insert(libc::SYS_prctl, [when(0, Eq, name)?, when(0, Eq, NAME_MEMORY)?].concat());
    // To be told limits, not to set them.
    let no_limits = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![no_limits])?]);
    let commands = COMMANDS.iter().map(|command| when(1, Eq, *command)).collect::<Result<Vec<_>, _>>()?;
    rules.insert(libc::SYS_ioctl, if image.kernel { Vec::new() } else { commands.concat() });
    if image.kernel {
        // Of a file that is open, never by a path.
        let no_path = SeccompCondition::new(1, SeccompCmpArgLen::Qword, Eq, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![no_path])?]);
    }
    if image.rings {
        rules.insert(libc::SYS_io_uring_enter, Vec::new());
        rules.insert(libc::SYS_io_uring_register, when(1, Eq, START_RING)?);
    }
    Ok(rules)
}
