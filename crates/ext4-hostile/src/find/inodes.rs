//! Finds inodes, and the structures that belong to them.

use shunt_ext4::layout::InodeFlags;

use super::{Finder, Kind, inode, inode_of, map};
use crate::number::u16_at;

/// Inode number of the journal.
pub(super) const JOURNAL: u32 = 8;

/// Inode number of the blocks reserved for descriptors.
const RESIZE: u32 = 7;

/// Number of free inodes to record as well: they are allocated next.
const FREE: usize = 3;

impl Finder {
    /// Records the inodes, with their maps, directories and attributes.
    pub(super) fn inodes(&mut self, orphan_file: u32) {
        let mut free = 0;
        for number in 1..=self.geometry.inodes {
            let raw = inode_of(&self.view, &self.geometry, number);
            let used = raw.mode.get() != 0 && raw.links_count.get() != 0;
            free += usize::from(!used);
            if used || free <= FREE {
                let start = inode(&self.view, &self.geometry, number);
                self.note(Kind::Inode, start, self.geometry.inode_size.into(), number);
            }
            if used {
                self.belongings(number, orphan_file);
            }
        }
    }

    fn belongings(&mut self, number: u32, orphan_file: u32) {
        let raw = inode_of(&self.view, &self.geometry, number);
        if raw.file_acl_lo.get() != 0 {
            self.note_block(Kind::Xattrs, raw.file_acl_lo.get().into(), number);
        }
        let kind = raw.mode.get() >> 12;
        let inline = InodeFlags::from_bits_retain(raw.flags.get()).contains(InodeFlags::INLINE_DATA);
        let short = kind == 0o12 && raw.size_lo.get() < 60;
        if number == RESIZE || inline || short || !matches!(kind, 0o04 | 0o10 | 0o12) {
            return;
        }
        let size = self.geometry.block_size as usize;
        let blocks = map::blocks(&self.view, size, &raw);
        for node in blocks.nodes {
            self.note_block(Kind::ExtentNode, node, number);
        }
        for block in blocks.indirect {
            self.note_block(Kind::Indirect, block, number);
        }
        for (logical, block) in blocks.data {
            if number == orphan_file {
                self.note_block(Kind::OrphanBlock, block, number);
            } else if kind == 0o04 {
                let indexed = raw.flags.get() & InodeFlags::INDEX.bits() != 0;
                let bytes = &self.view[block as usize * size..][..size];
                let node = indexed && bytes[..4] == [0; 4] && u16_at(bytes, 4) == size;
                let kind = match (indexed, logical) {
                    (true, 0) => Kind::IndexRoot,
                    _ if node => Kind::IndexNode,
                    _ => Kind::DirectoryLeaf,
                };
                self.note_block(kind, block, number);
            }
        }
    }
}
