//! READDIR and READDIRPLUS. The offset of an entry is the engine's position after it. READDIRPLUS increments the lookup count
//! of each inode that it returns.

use shunt_ext4::{Entry, Inode};
use shunt_fuse::{DirectoryBuffer, DirectoryPlusBuffer, Errno, FileType, Request};

use crate::Ext4;
use crate::attributes::file_type;

fn is_dots(entry: &Entry) -> bool {
    matches!(&*entry.name, b"." | b"..")
}

impl Ext4 {
    /// Returns the type of a dentry, from its inode where the dentry does not have it.
    fn kind(&self, entry: &Entry) -> FileType {
        let kind = entry.kind.or_else(|| self.filesystem.inode(entry.inode).ok().map(|inode| inode.kind));
        kind.map_or(FileType::Regular, file_type)
    }

    pub(crate) fn list(
        &self,
        directory: &Inode,
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.to_errno(self.filesystem.list(directory, offset, |entry| {
            out.push(&entry.name, entry.inode.into(), self.kind(&entry), entry.next)
        }))
    }

    pub(crate) fn list_plus(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.to_errno(self.filesystem.list(directory, offset, |entry| {
            if !out.has_room_for(&entry.name) {
                return false;
            }
            // A name whose lookup fails is listed without an entry: a later access gets the error.
            let found = if is_dots(&entry) { None } else { self.follow(directory, &entry).ok() };
            match found {
                // The entry fits, so the kernel gets a reference.
                Some(inode) => out.push(&entry.name, &self.entry_with_lookup(request, &inode), entry.next),
                None => out.push_name(&entry.name, entry.inode.into(), self.kind(&entry), entry.next),
            }
        }))
    }
}
