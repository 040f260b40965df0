//! The system calls of daemons and gateways of volumes. `allowed/network.txt` gives the reason for each, and the tests compare
//! the two.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::common::EPOLL_WAIT;
use super::{DaemonFeatures, Rules, common};

const ALWAYS: &[libc::c_long] = &[
    libc::SYS_writev,
    libc::SYS_splice,
    libc::SYS_pipe2,
    // The network.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_getsockname,
    libc::SYS_sendmmsg,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    EPOLL_WAIT,
    libc::SYS_wait4,
    libc::SYS_eventfd2,
    // Contents and databases, restricted by landlock.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    by_path::MKDIR,
    by_path::RENAME,
    libc::SYS_newfstatat,
    libc::SYS_linkat,
    libc::SYS_statfs,
    libc::SYS_syncfs,
    libc::SYS_ftruncate,
    libc::SYS_pwritev2,
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_utimensat,
    // Threads that register backing files drop one capability.
    libc::SYS_capget,
    libc::SYS_capset,
];

/// Newer architectures have only the calls relative to a directory.
#[cfg(target_arch = "x86_64")]
mod by_path {
    pub const MKDIR: libc::c_long = libc::SYS_mkdir;
    pub const RENAME: libc::c_long = libc::SYS_rename;
}

#[cfg(not(target_arch = "x86_64"))]
mod by_path {
    pub const MKDIR: libc::c_long = libc::SYS_mkdirat;
    pub const RENAME: libc::c_long = libc::SYS_renameat;
}

/// Commands to `/dev/fuse`: `FUSE_DEV_IOC_CLONE`, `_BACKING_OPEN` and `_BACKING_CLOSE`; and `FIONBIO`, which makes sockets
/// blocking or not.
const IOCTLS: [u64; 4] = [0x8004_e500, 0x4010_e501, 0x4004_e502, 0x5421];

pub(super) fn allowed(served: DaemonFeatures) -> Result<Rules, BackendError> {
    let mut rules = common::and(ALWAYS, served.rings)?;
    rules.insert(libc::SYS_ioctl, if served.kernel { Vec::new() } else { common::commands(&IOCTLS)? });
    // The C library loads its name resolution modules on first use: executable mappings are allowed if they map a file and are
    // not writable.
    let without = |argument, flag: libc::c_int| {
        let flag = SeccompCmpOp::MaskedEq(u64::from(flag.cast_unsigned()));
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, flag, 0)
    };
    let from_file = vec![without(2, libc::PROT_WRITE)?, without(3, libc::MAP_ANONYMOUS)?];
    rules.entry(libc::SYS_mmap).or_default().push(SeccompRule::new(from_file)?);
    Ok(rules)
}
