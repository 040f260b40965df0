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
        self.change(|core, shared| {
            let mut node = core.node(num)?;
            core.overlay(&mut node)?;
            let mut dirty = Dirty::empty();
            let mut mode = set.mode.map_or(node.mode, |mode| mode & 0o7777);
            if set.drop_privileges {
                mode = without_privileges(mode);
            }
            dirty.set(Dirty::MODE, mode != node.mode);
            node.mode = mode;
            if let Some(owner) = set.owner {
                if owner != node.owner && num != ROOT {
                    let bytes = if node.is_regular() { node.size } else { 0 };
                    core.check_quota(owner.0, Usage { bytes, objects: 1 }, true)?;
                }
                dirty.set(Dirty::OWNER, owner != node.owner);
                node.owner = owner;
            }
            if let Some(group) = set.group {
                dirty.set(Dirty::GROUP, group != node.group);
                node.group = group;
            }
            if let Some(modified) = set.modified {
                dirty.set(Dirty::MODIFIED, modified != node.modified);
                node.modified = modified;
                // After a crash, the time of a backing file shows whether the file was written.
                match core.opens.get(&num).filter(|open| open.writers > 0) {
                    Some(open) => open_file::set_modified(&open.file, modified)?,
                    None if node.maybe_dirty => {
                        open_file::set_modified(&shared.files.existing(num)?, modified)?;
                    }
                    None => {}
                }
            }
            if let Some(used) = set.last_opened {
                node.last_opened = used;
            }
            node.changed = shared.now();
            core.begin()?;
            if !dirty.is_empty() {
                // The unchanged inode, for the base version.
                let mut before = core.node(num)?;
                core.mark_dirty(&mut before, dirty)?;
                node.dirty = before.dirty;
                node.generation = before.generation;
            }
            core.save(node.clone());
            Ok(node)
        })
    }
}
