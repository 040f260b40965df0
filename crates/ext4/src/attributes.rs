//! Changes of inode attributes: mode, ownership, timestamps and flags.

use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::time::Time;
use crate::{time, xattr};

/// Attributes to change; `None` leaves one unchanged.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits, setuid, setgid and sticky.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last access.
    pub atime: Option<Time>,
    /// Time of the last change of the content.
    pub mtime: Option<Time>,
    /// Time of the last change of the inode. `None` means now if any other attribute is set.
    pub ctime: Option<Time>,
    /// Inode flags.
    pub flags: Option<InodeFlags>,
}

/// Number of blocks that a change of one inode may change.
pub(crate) const INODE_CREDITS: u32 = 1;

impl Filesystem {
    /// Changes attributes of an inode; returns the changed inode.
    ///
    /// # Errors
    /// The errors of [`inode`](Self::inode), and [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn set_attributes(&self, number: u32, change: &Attributes) -> Result<Inode> {
        let _lock = self.locks.write(number);
        let mut inode = self.inode_in_use(number)?;
        let parts = |inode: &Inode| {
            let Inode { permissions, uid, gid, atime, mtime, ctime, flags, .. } = *inode;
            (permissions, uid, gid, atime, mtime, ctime, flags)
        };
        let before = parts(&inode);
        let Attributes { permissions, uid, gid, atime, mtime, ctime, flags } = change.clone();
        inode.permissions = permissions.unwrap_or(inode.permissions) & 0o7777;
        inode.uid = uid.unwrap_or(inode.uid);
        inode.gid = gid.unwrap_or(inode.gid);
        let latest = Time::latest(inode.extra(&self.geometry));
        inode.atime = atime.map_or(inode.atime, |time| time.min(latest));
        inode.mtime = mtime.map_or(inode.mtime, |time| time.min(latest));
        inode.ctime = ctime.unwrap_or_else(time::now).min(latest);
        inode.flags = flags.unwrap_or(inode.flags);
        // Skip the transaction, for example when the kernel writes back the times of a file just created or unlinked.
        if permissions.is_none() && parts(&inode) == before {
            return Ok(inode);
        }
        let mut handle = self.store.begin(INODE_CREDITS + xattr::CREDITS)?;
        if permissions.is_some() {
            xattr::follow_mode(self, &mut handle, &mut inode)?;
        }
        inode.save(&mut handle)?;
        handle.complete();
        Ok(inode)
    }

    /// Sets the access time of an inode, without changing its ctime.
    ///
    /// # Errors
    /// The errors of [`set_attributes`](Self::set_attributes).
    pub fn set_read_time(&self, number: u32, time: Time) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.inode_in_use(number)?;
        inode.atime = time;
        self.save_alone(&inode)
    }

    /// Saves an inode in a transaction handle of its own.
    pub(crate) fn save_alone(&self, inode: &Inode) -> Result<()> {
        self.save_alone_recording(inode, None)
    }

    /// Saves an inode like [`save_alone`](Self::save_alone), and records `value` as the outcome of the operation.
    pub(crate) fn save_alone_recording(&self, inode: &Inode, value: Option<u64>) -> Result<()> {
        let mut handle = self.store.begin(INODE_CREDITS)?;
        inode.save(&mut handle)?;
        if let Some(value) = value {
            handle.record(value);
        }
        handle.complete();
        Ok(())
    }
}
