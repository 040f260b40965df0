//! Feature detection of the lower file system.

use std::os::fd::AsFd;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;

use super::sys::ProcPath;

/// Features of the source's file system, detected once on its root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// It supports extended attributes in any namespace.
    pub xattrs: bool,
    /// It supports POSIX ACLs.
    pub acls: bool,
    /// It is not a network file system: write errors are reported at once, not at close.
    pub local: bool,
    /// It is stacked on other file systems (overlay, eCryptfs, FUSE).
    pub stacked: bool,
    /// Access times are inexact: the mount has `relatime` or `noatime`, or is read-only.
    pub relatime: bool,
}

/// NFS, SMB (two), FUSE, 9P, Ceph, AFS (two): `close` may report an error on these.
const REMOTE: [i64; 8] =
    [0x6969, 0xff53_4d42, 0xfe53_4d42, 0x6573_5546, 0x0102_1997, 0x00c3_6400, 0x5346_414f, 0x6b41_4653];

/// Overlay, eCryptfs, FUSE (which may use passthrough itself).
const STACKED: [i64; 3] = [0x794c_7630, 0xf15f, 0x6573_5546];

const INEXACT: StatVfsMountFlags =
    StatVfsMountFlags::RELATIME.union(StatVfsMountFlags::NOATIME).union(StatVfsMountFlags::RDONLY);

impl Features {
    /// Detects the features of the file system of `root`, an O_PATH descriptor.
    pub(crate) fn of(root: impl AsFd) -> Self {
        let path = ProcPath::new(&root);
        let knows = |name| rustix::fs::getxattr_query(path.as_cstr(), name) != Err(Errno::OPNOTSUPP);
        let magic = rustix::fs::fstatfs(&root).map_or(0, |statfs| statfs.f_type);
        Self {
            xattrs: knows(c"user.any") || knows(c"trusted.any") || knows(c"security.capability"),
            acls: knows(c"system.posix_acl_access"),
            local: !REMOTE.contains(&(magic & 0xffff_ffff)),
            stacked: STACKED.contains(&magic),
            relatime: rustix::fs::fstatvfs(&root).is_ok_and(|statvfs| statvfs.f_flag.intersects(INEXACT)),
        }
    }
}
