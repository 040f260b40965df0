//! Sets attributes of objects: mode, owner, group and times.

use rustix::io::Errno;

use crate::id::OwnerId;
use crate::object::Time;
use crate::quota::Usage;
use crate::replica::Replica;
use crate::replica::data::open_file;
use crate::replica::db::inode::without_privileges;
use crate::replica::db::inode::{Dirty, Inode, ROOT};

/// Attributes to set; `None` leaves one unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u16>,
    /// The owning user.
    pub owner: Option<OwnerId>,
    /// The owning group.
    pub group: Option<OwnerId>,
    /// The modification time.
    pub modified: Option<Time>,
    /// The access time, known to this node only.
    pub last_opened: Option<Time>,
    /// Clear setuid, and setgid if the group may execute the file.
    pub drop_privileges: bool,
}

impl Replica {
    /// Sets attributes. Returns the resulting inode.
    ///
    /// # Errors
    /// EDQUOT if the new owner would exceed a limit; ESTALE, EIO.
    pub fn set(&self, num: u64, set: SetAttr) -> Result<Inode, Errno> {
        self.change(|db, shared| {
            let mut inode = db.inode(num)?;
            db.overlay(&mut inode)?;
            let mut dirty = Dirty::empty();
            let mut mode = set.mode.map_or(inode.mode, |mode| mode & 0o7777);
            if set.drop_privileges {
                mode = without_privileges(mode);
            }
            dirty.set(Dirty::MODE, mode != inode.mode);
            inode.mode = mode;
            if let Some(owner) = set.owner {
                if owner != inode.owner && num != ROOT {
                    let bytes = if inode.is_regular() { inode.size } else { 0 };
                    db.check_quota(owner.0, Usage { bytes, objects: 1 }, true)?;
                }
                dirty.set(Dirty::OWNER, owner != inode.owner);
                inode.owner = owner;
            }
            if let Some(group) = set.group {
                dirty.set(Dirty::GROUP, group != inode.group);
                inode.group = group;
            }
            if let Some(modified) = set.modified {
                dirty.set(Dirty::MODIFIED, modified != inode.modified);
                inode.modified = modified;
                // After a crash, the time of a backing file shows whether the file was written.
                match db.opens.get(&num).filter(|open| open.writers > 0) {
                    Some(open) => open_file::set_modified(&open.file, modified)?,
                    None if inode.maybe_dirty => {
                        open_file::set_modified(&shared.files.existing(num)?, modified)?;
                    }
                    None => {}
                }
            }
            if let Some(used) = set.last_opened {
                inode.last_opened = used;
            }
            inode.changed = shared.now();
            db.begin()?;
            if !dirty.is_empty() {
                // The unchanged inode, for the base version.
                let mut before = db.inode(num)?;
                db.mark_dirty(&mut before, dirty)?;
                inode.dirty = before.dirty;
                inode.generation = before.generation;
            }
            db.save(inode.clone());
            Ok(inode)
        })
    }
}
