//! Extended attributes of the tree, each of which is synchronised by itself.

use rusqlite::{OptionalExtension as _, params};
use rustix::io::Errno;

use crate::replica::Replica;
use crate::replica::db::inode::Dirty;
use crate::replica::error::OpError;

/// Maximum size of all extended attributes of an object, with their names: the most that the log can carry.
const MAX_XATTRS_BYTES: usize = 1 << 20;
const MAX_XATTR_VALUE_BYTES: usize = 65_536;
const MAX_XATTR_NAME_BYTES: usize = 255;

impl Replica {
    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// ENODATA, ESTALE, EIO.
    pub fn xattr(&self, num: u64, name: &[u8]) -> Result<Vec<u8>, Errno> {
        self.read(|db| {
            if !db.inode(num)?.xattrs {
                return Err(OpError::new(Errno::NODATA));
            }
            let mut query = db.db.prepare_cached("SELECT value FROM xattr WHERE num = ?1 AND name = ?2")?;
            let value = query.query_row(params![num as i64, name], |row| row.get(0)).optional()?;
            value.ok_or(OpError::new(Errno::NODATA))
        })
    }

    /// Returns the names of all attributes.
    ///
    /// # Errors
    /// ESTALE, EIO.
    pub fn xattr_names(&self, num: u64) -> Result<Vec<Vec<u8>>, Errno> {
        self.read(|db| {
            let inode = db.inode(num)?;
            Ok(db.xattrs(&inode)?.into_keys().collect())
        })
    }

    /// Sets or removes an attribute. `there`: it must exist already, or must not.
    ///
    /// # Errors
    /// EEXIST, ENODATA; ERANGE for a name, E2BIG for a value that is too long; ENOSPC if the attributes are too large
    /// together; ESTALE, EIO.
    pub fn set_xattr(
        &self,
        num: u64,
        name: &[u8],
        value: Option<&[u8]>,
        there: Option<bool>,
    ) -> Result<(), Errno> {
        if name.is_empty() || name.len() > MAX_XATTR_NAME_BYTES {
            return Err(Errno::RANGE);
        }
        if value.is_some_and(|value| value.len() > MAX_XATTR_VALUE_BYTES) {
            return Err(Errno::TOOBIG);
        }
        self.change(|db, shared| {
            if value.is_some() {
                shared.durability.has_room()?;
            }
            let mut inode = db.inode(num)?;
            let mut all = db.xattrs(&inode)?;
            match (all.contains_key(name), there) {
                (true, Some(false)) => return Err(OpError::new(Errno::EXIST)),
                (false, Some(true)) => return Err(OpError::new(Errno::NODATA)),
                _ => {}
            }
            match value {
                Some(value) => drop(all.insert(name.to_vec(), value.to_vec())),
                None => drop(all.remove(name)),
            }
            if all.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > MAX_XATTRS_BYTES {
                return Err(OpError::new(Errno::NOSPC));
            }
            db.mark_dirty(&mut inode, Dirty::XATTR)?;
            match value {
                Some(value) => {
                    db.db
                        .prepare_cached("INSERT OR REPLACE INTO xattr VALUES (?1, ?2, ?3)")?
                        .execute(params![num as i64, name, value])?;
                }
                None => {
                    db.db
                        .prepare_cached("DELETE FROM xattr WHERE num = ?1 AND name = ?2")?
                        .execute(params![num as i64, name])?;
                }
            }
            inode.xattrs = !all.is_empty();
            inode.changed = shared.now();
            db.save(inode);
            db.note_result(0);
            Ok(())
        })
    }
}
