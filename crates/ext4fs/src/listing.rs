//! Directories listed.

use shunt_ext4::{Entry, Inode};
use shunt_fuse::{DirectoryBuffer, DirectoryPlusBuffer, Errno, FileType};

use crate::Ext4;
use crate::attributes::file_type;

fn is_dots(entry: &Entry) -> bool {
    matches!(&*entry.name, b"." | b"..")
}

impl Ext4 {
    /// Where the directory does not say what an inode is, the inode does.
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
        self.told(self.filesystem.list(directory, offset, |entry| {
            out.push(&entry.name, entry.inode.into(), self.kind(&entry), entry.next)
        }))
    }

    pub(crate) fn list_plus(
        &self,
        directory: &Inode,
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.told(self.filesystem.list(directory, offset, |entry| {
            if !out.has_room_for(&entry.name) {
                return false;
            }
            // What cannot be looked up is listed by name: the one who asks for it gets the error.
            let found = if is_dots(&entry) { None } else { self.follow(directory, &entry).ok() };
            match found {
                // There is room: the kernel is told of it.
                Some(inode) => out.push(&entry.name, &self.tell(&inode), entry.next),
                None => out.push_name(&entry.name, entry.inode.into(), self.kind(&entry), entry.next),
            }
        }))
    }
}
