//! The system calls of a daemon that serves a directory to a guest. `allowed/guest.txt` gives the reason for each, and the tests
//! compare the two.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{Rules, common, when};

const ALWAYS: &[libc::c_long] = &[
    // The memory and the queues of the guest.
    libc::SYS_preadv,
    libc::SYS_pwritev2,
    // The state for the daemon that takes over.
    libc::SYS_memfd_create,
    // Going into the background.
    common::DUP2,
    libc::SYS_eventfd2,
    // The directory.
    libc::SYS_openat2,
    libc::SYS_readlinkat,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat2,
    libc::SYS_ftruncate,
    libc::SYS_copy_file_range,
    libc::SYS_syncfs,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_getxattr,
    libc::SYS_fgetxattr,
    libc::SYS_setxattr,
    libc::SYS_listxattr,
    libc::SYS_removexattr,
    // Acting on behalf of users.
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
    libc::SYS_umask,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_getegid,
];

/// Flags and project ids of files: `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS`, `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR`; and
/// `FIONBIO`, which makes sockets blocking or not.
const IOCTLS: [u64; 5] = [0x8008_6601, 0x4008_6602, 0x801c_581f, 0x401c_5820, 0x5421];

pub(super) fn allowed() -> Result<Rules, BackendError> {
    let mut rules = common::and(ALWAYS, false)?;
    let own = |option: libc::c_int| when(0, SeccompCmpOp::Eq, option.cast_unsigned().into());
    // Securebits: they control whether capabilities follow a change of the thread's user id.
    let bits = [own(libc::PR_GET_SECUREBITS)?, own(libc::PR_SET_SECUREBITS)?].concat();
    rules.entry(libc::SYS_prctl).or_default().extend(bits);
    // Threads have working directories and umasks of their own. No user namespaces, in which they would have capabilities.
    let only = u64::from(libc::CLONE_FS.cast_unsigned());
    let only = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, only)?;
    rules.insert(libc::SYS_unshare, vec![SeccompRule::new(vec![only])?]);
    rules.insert(libc::SYS_ioctl, common::commands(&IOCTLS)?);
    Ok(rules)
}
