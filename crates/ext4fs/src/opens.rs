//! Open handles: access checks at open, and what each handle permits. The state of an open is encoded in its handle number;
//! only the counts of writable handles are kept in `writers`.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind, ReservedAccess};
use shunt_fuse::{Errno, FileHandle, NodeId, Opened, ReleaseArgs, Request};

use crate::Ext4;
use crate::notification_sent::NotificationSent;
use crate::sequence::Sequence;

pub(crate) const O_EXCL: u32 = rustix::fs::OFlags::EXCL.bits();
const O_APPEND: u32 = rustix::fs::OFlags::APPEND.bits();
const O_TRUNC: u32 = rustix::fs::OFlags::TRUNC.bits();
pub(crate) const ACCMODE: u32 = rustix::fs::OFlags::RWMODE.bits();
pub(crate) const WRONLY: u32 = rustix::fs::OFlags::WRONLY.bits();

/// A handle identifies nothing by itself, because each request names its inode. Its low 32 bits are a number that no other handle has
/// at the time, then follow open flags, and the sequence number of the open.
const RESERVED: u64 = 1 << 32;
const ONLY_WRITES: u64 = 2 << 32;
const APPENDS: u64 = 4 << 32;
const SEQUENCE_SHIFT: u32 = 35;

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
pub(crate) fn sequence_of(handle: FileHandle) -> Sequence {
    Sequence::new(handle.0 >> SEQUENCE_SHIFT)
}

/// Makes the checks that the kernel cannot: inode flags, which it does not know, and missing encryption keys.
pub(crate) fn may_open(inode: &Inode, flags: u32) -> Result<(), Errno> {
    if inode.kind == Kind::Regular && inode.flags.contains(InodeFlags::ENCRYPT) {
        return Err(Errno::NOKEY);
    }
    let writes = flags & ACCMODE != 0 || flags & O_TRUNC != 0;
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
        if flags & ACCMODE == 0 || !self.is_low() {
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
        if self.is_writable() && flags & ACCMODE != 0 {
            self.writers.opened(inode, flags & ACCMODE != WRONLY);
            if let Some(low_space) = &self.low_space {
                low_space.opened(|| request.session().caches().clone());
            }
        }
        let rights = self.filesystem.rights(request.uid(), request.gid());
        let bits = [
            (rights == ReservedAccess::Reserved, RESERVED),
            (flags & ACCMODE == WRONLY, ONLY_WRITES),
            (flags & O_APPEND != 0, APPENDS),
        ];
        let how: u64 = bits.iter().filter(|(is_set, _)| *is_set).map(|(_, bit)| bit).sum();
        let sequence = self.write_errors.opened().number() << SEQUENCE_SHIFT;
        let opened = Opened::cached(FileHandle(sequence | how | u64::from(self.handles.take())));
        // Data moves between the kernel's pages and the image, unless the kernel module has it on the device.
        let moves = self.image.is_some() && self.writing.is_none();
        let opened = if moves { opened.zero_copy() } else { opened };
        if self.sees_all_reads() { opened } else { opened.keep_cache() }
    }

    pub(crate) fn closed(&self, inode: u32, args: &ReleaseArgs) {
        self.handles.give_back(args.handle);
        self.write_errors.closed(inode, sequence_of(args.handle));
        if args.flags & ACCMODE != 0 {
            self.writers.closed(inode, !only_writes(args.handle));
        }
    }
}
