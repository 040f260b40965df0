//! What is opened, by whom.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, Rights};
use shunt_fuse::{Errno, FileHandle, Opened, Request};

use crate::Ext4;

pub(crate) const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_ACCMODE: u32 = rustix::fs::OFlags::RWMODE.bits();

/// The handle of a file that somebody opened who may have the last blocks. Handles say nothing else: each request names its
/// inode.
const RESERVED: FileHandle = FileHandle(1);
const COMMON: FileHandle = FileHandle(0);

/// Whose blocks are taken by what is written through a handle.
pub(crate) fn rights_of(handle: FileHandle) -> Rights {
    if handle == RESERVED { Rights::Reserved } else { Rights::Common }
}

/// What the kernel leaves to us: the marks of an inode, which it does not know, and a key that is not there.
pub(crate) fn may_open(inode: &Inode, flags: u32) -> Result<(), Errno> {
    if inode.kind == Kind::Regular && inode.flags.contains(InodeFlags::ENCRYPT) {
        return Err(Errno::NOKEY);
    }
    let writes = flags & O_ACCMODE != 0 || flags & O_TRUNC != 0;
    let appends = flags & O_APPEND != 0 && flags & O_TRUNC == 0;
    let content = matches!(inode.kind, Kind::Regular | Kind::Directory);
    let immutable = inode.flags.contains(InodeFlags::IMMUTABLE);
    let append_only = inode.flags.contains(InodeFlags::APPEND) && !appends;
    if content && writes && (immutable || append_only) { Err(Errno::PERM) } else { Ok(()) }
}

impl Ext4 {
    /// Pages are written back by nobody in particular: it counts who opened the file.
    pub(crate) fn opened(&self, request: &Request<'_>) -> Opened {
        let handle = match self.filesystem.rights(request.uid(), request.gid()) {
            Rights::Reserved => RESERVED,
            Rights::Common => COMMON,
        };
        let opened = Opened::cached(handle);
        if self.sees_all_reads() { opened } else { opened.keep_cache() }
    }
}
