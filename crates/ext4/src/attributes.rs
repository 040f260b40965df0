//! Changes of what an inode says of itself.

use crate::error::Result;
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::layout::InodeFlags;
use crate::time::Time;
use crate::{time, xattr};

/// What is to be changed; `None` leaves it as it is.
#[derive(Debug, Clone, Default)]
pub struct Attributes {
    /// Permission bits, setuid, setgid and sticky.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<Time>,
    /// Last change of the content.
    pub mtime: Option<Time>,
    /// Last change of the inode; now, where nothing is said and anything else is.
    pub ctime: Option<Time>,
    /// Flags.
    pub flags: Option<InodeFlags>,
}

/// Blocks that a change of one inode may change.
pub(crate) const INODE_CREDITS: u32 = 1;

impl Filesystem {
    /// Changes attributes of an inode; tells what it is then.
    ///
    /// # Errors
    /// As [`inode`](Self::inode), [`Error::ReadOnly`](crate::Error::ReadOnly).
    pub fn set_attributes(&self, number: u32, change: &Attributes) -> Result<Inode> {
        let _lock = self.locks.write(number);
        let mut inode = self.living(number)?;
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
        // As where the kernel writes back the times of what was made or lost its name a moment ago.
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

    /// Sets the time of an inode's last read, and nothing else: no change of the inode.
    ///
    /// # Errors
    /// As [`set_attributes`](Self::set_attributes).
    pub fn set_read_time(&self, number: u32, time: Time) -> Result<()> {
        let _lock = self.locks.write(number);
        let mut inode = self.living(number)?;
        inode.atime = time;
        self.save_alone(&inode)
    }

    /// Saves an inode of which nothing else changes.
    pub(crate) fn save_alone(&self, inode: &Inode) -> Result<()> {
        let mut handle = self.store.begin(INODE_CREDITS)?;
        inode.save(&mut handle)?;
        handle.complete();
        Ok(())
    }
}
