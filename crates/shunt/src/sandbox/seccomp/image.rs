//! The system calls of a daemon that serves an image. `allowed/image.txt` gives the reason for each, and the tests compare the
//! two.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

use super::{DaemonFeatures, Rules, common};

const ALWAYS: &[libc::c_long] = &[
    libc::SYS_newfstatat,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_splice,
    libc::SYS_pipe2,
    libc::SYS_getsockname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_fadvise64,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_uname,
    libc::SYS_getuid,
    libc::SYS_getegid,
    libc::SYS_readlinkat,
    libc::SYS_getgid,
];

/// Commands to `/dev/fuse` and to the disk: `FUSE_DEV_IOC_CLONE`, `BLKDISCARD`; and `FIONBIO`, which makes sockets blocking or
/// not.
const IOCTLS: [u64; 3] = [0x8004_e500, 0x1277, 0x5421];

pub(super) fn allowed(served: DaemonFeatures) -> Result<Rules, BackendError> {
    let mut rules = of_readers(served)?;
    // The daemon goes into the background when the image is open.
    rules.insert(common::DUP2, Vec::new());
    Ok(rules)
}

/// The calls for reading an image, shared with `extract`.
pub(super) fn of_readers(served: DaemonFeatures) -> Result<Rules, BackendError> {
    let mut rules = common::and(ALWAYS, served.rings)?;
    rules.insert(libc::SYS_ioctl, if served.kernel { Vec::new() } else { common::commands(&IOCTLS)? });
    if served.kernel {
        // On an open file only, never by a path.
        let no_path = SeccompCondition::new(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
        rules.insert(libc::SYS_utimensat, vec![SeccompRule::new(vec![no_path])?]);
    }
    Ok(rules)
}
