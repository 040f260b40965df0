//! What is opened, by whom.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, ReservedAccess};
use shunt_fuse::{Errno, FileHandle, NodeId, Opened, ReleaseArgs, Request};

use crate::Ext4;
use crate::elsewhere::Elsewhere;

pub(crate) const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_ACCMODE: u32 = rustix::fs::OFlags::RWMODE.bits();

const O_WRONLY: u32 = rustix::fs::OFlags::WRONLY.bits();

/// A handle is not the key of anything, since each request names its inode. Its low bits say how the file was opened, and
/// the rest is the number of the open.
const RESERVED: u64 = 1;
const ONLY_WRITES: u64 = 2;
const APPENDS: u64 = 4;
const NUMBER_SHIFT: u32 = 8;

/// Whose blocks are taken by what is written through a handle: of somebody who may have the last ones, or not.
pub(crate) fn rights_of(handle: FileHandle) -> ReservedAccess {
    if handle.0 & RESERVED != 0 { ReservedAccess::Reserved } else { ReservedAccess::Common }
}

/// Opened with `O_WRONLY`.
pub(crate) fn only_writes(handle: FileHandle) -> bool {
    handle.0 & ONLY_WRITES != 0
}

/// Opened with `O_APPEND`.
pub(crate) fn appends(handle: FileHandle) -> bool {
    handle.0 & APPENDS != 0
}

/// The number of the open.
pub(crate) fn number_of(handle: FileHandle) -> u64 {
    handle.0 >> NUMBER_SHIFT
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
    /// A file is opened for writing where space is low: the first write is to ask whether it may.
    ///
    /// The kernel must have dropped the attributes before that write, hence before the answer.
    pub(crate) async fn has_writes_ask(&self, request: &Request<'_>, node: NodeId, flags: u32) {
        if flags & O_ACCMODE == 0 || !self.is_low() {
            return;
        }
        let caches = request.session().caches();
        caches.invalidate_node(node, None);
        if let Some(settled) = caches.settled(node) {
            Elsewhere::wait_for(settled).await;
        }
    }

    /// Pages are written back by nobody in particular: it counts who opened the file.
    pub(crate) fn opened(&self, request: &Request<'_>, inode: u32, flags: u32) -> Opened {
        if self.is_writable() && flags & O_ACCMODE != 0 {
            self.writers.opened(inode, flags & O_ACCMODE != O_WRONLY);
            if let Some(low_space) = &self.low_space {
                low_space.opened(|| request.session().caches().clone());
            }
        }
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let bits = [
            (rights == ReservedAccess::Reserved, RESERVED),
            (flags & O_ACCMODE == O_WRONLY, ONLY_WRITES),
            (flags & O_APPEND != 0, APPENDS),
        ];
        let how: u64 = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        let opened = Opened::cached(FileHandle(self.lost.opened() << NUMBER_SHIFT | how));
        if self.sees_all_reads() { opened } else { opened.keep_cache() }
    }

    pub(crate) fn closed(&self, inode: u32, args: &ReleaseArgs) {
        self.lost.closed(inode, number_of(args.handle));
        if args.flags & O_ACCMODE != 0 {
            self.writers.closed(inode, !only_writes(args.handle));
        }
    }
}
