//! Open handles: access checks at open, and what each handle permits. The state of an open is encoded in its handle number;
//! only the counts of writable handles are kept in `writers`.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, ReservedAccess};
use shunt_fuse::{Errno, FileHandle, NodeId, Opened, ReleaseArgs, Request};

use crate::Ext4;
use crate::notification_sent::NotificationSent;

pub(crate) const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
const O_ACCMODE: u32 = rustix::fs::OFlags::RWMODE.bits();

const O_WRONLY: u32 = rustix::fs::OFlags::WRONLY.bits();

/// A handle identifies nothing by itself, because each request names its inode. Its low bits hold open flags, the rest is the
/// sequence number of the open.
const RESERVED: u64 = 1;
const ONLY_WRITES: u64 = 2;
const APPENDS: u64 = 4;
const NUMBER_SHIFT: u32 = 8;

/// Returns whether writes through a handle may use the reserved blocks.
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

/// Returns the sequence number of the open.
pub(crate) fn number_of(handle: FileHandle) -> u64 {
    handle.0 >> NUMBER_SHIFT
}

/// Makes the checks that the kernel cannot: inode flags, which it does not know, and missing encryption keys.
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
    /// Drops the cached attributes of a file that is opened for writing when space is low, so that its first write sends a
    /// GETATTR.
    ///
    /// The kernel must have dropped them before that write, hence before the reply to the open.
    pub(crate) async fn require_getattr_before_write(&self, request: &Request<'_>, node: NodeId, flags: u32) {
        if flags & O_ACCMODE == 0 || !self.is_low() {
            return;
        }
        let caches = request.session().caches();
        caches.invalidate_node(node, None);
        if let Some(settled) = caches.settled(node) {
            NotificationSent::wait_for(settled).await;
        }
    }

    /// Records an open. Write-back requests carry no caller, so the right to reserved blocks is that of the opener.
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
        let opened = Opened::cached(FileHandle(self.write_errors.opened() << NUMBER_SHIFT | how));
        // Data moves between the kernel's pages and the image, unless the kernel module has it on the device.
        let moves = self.image.is_some() && self.writing.is_none();
        let opened = if moves { opened.zero_copy() } else { opened };
        if self.sees_all_reads() { opened } else { opened.keep_cache() }
    }

    pub(crate) fn closed(&self, inode: u32, args: &ReleaseArgs) {
        self.write_errors.closed(inode, number_of(args.handle));
        if args.flags & O_ACCMODE != 0 {
            self.writers.closed(inode, !only_writes(args.handle));
        }
    }
}
