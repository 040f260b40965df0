//! Locates the on-disk structures of a sound image.

mod inodes;
mod journal;
mod map;

use std::collections::BTreeMap;

use shunt_ext4::layout::{GroupDescriptor, RawInode, RawSuperblock};
use shunt_ext4::{Geometry, MemoryDevice};
use zerocopy::FromBytes;

pub use journal::{Journal, Transaction};

/// Kind of an on-disk structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "named as in the format's documentation")]
pub enum Kind {
    Superblock,
    Descriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    ExtentNode,
    Indirect,
    DirectoryLeaf,
    IndexRoot,
    IndexNode,
    Xattrs,
    OrphanBlock,
    JournalSuperblock,
    JournalDescriptor,
    JournalRevocations,
    JournalCommit,
    FastCommit,
}

/// All kinds. Inputs depend on their order.
pub const KINDS: [Kind; 17] = [
    Kind::Superblock,
    Kind::Descriptor,
    Kind::BlockBitmap,
    Kind::InodeBitmap,
    Kind::Inode,
    Kind::ExtentNode,
    Kind::Indirect,
    Kind::DirectoryLeaf,
    Kind::IndexRoot,
    Kind::IndexNode,
    Kind::Xattrs,
    Kind::OrphanBlock,
    Kind::JournalSuperblock,
    Kind::JournalDescriptor,
    Kind::JournalRevocations,
    Kind::JournalCommit,
    Kind::FastCommit,
];

/// An on-disk structure. If it is journaled, this is its last version in the journal.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// Its kind.
    pub kind: Kind,
    /// Offset in the image in bytes.
    pub start: usize,
    /// Length in bytes.
    pub length: usize,
    /// Inode that it belongs to or is; or its group.
    pub owner: u32,
    /// Block number in the file system, even if this is a version in the journal.
    pub block: u64,
}

/// Structures found in an image.
pub struct Structures {
    /// Geometry before mutation.
    pub geometry: Geometry,
    /// All structures, by kind.
    pub sites: BTreeMap<Kind, Vec<Site>>,
    /// The journal, if there is one.
    pub journal: Option<Journal>,
}

/// Finds the structures of a sound image.
pub(crate) fn structures(bytes: &[u8]) -> Structures {
    let (geometry, superblock) =
        Geometry::read(&MemoryDevice::new(bytes.to_vec())).expect("the image is valid");
    let journal = journal::find(bytes, &geometry, &superblock);
    let mut view = bytes.to_vec();
    let mut copies = BTreeMap::new();
    if let Some(journal) = &journal {
        journal.apply(&mut view, geometry.block_size as usize);
        copies = journal.copies();
    }
    let mut finder = Finder { view, geometry, copies, sites: BTreeMap::new() };
    finder.groups();
    finder.inodes(superblock.orphan_file_inum.get());
    let mut sites = finder.sites;
    for site in journal.iter().flat_map(|journal| &journal.sites) {
        sites.entry(site.kind).or_default().push(*site);
    }
    Structures { geometry: finder.geometry, sites, journal }
}

/// Returns the offset of a group descriptor in bytes.
fn descriptor(geometry: &Geometry, group: u32) -> usize {
    let per_block = geometry.descriptors_per_block();
    let block = geometry.descriptor_block(group / per_block);
    (block << geometry.block_bits) as usize
        + (group % per_block) as usize * usize::from(geometry.descriptor_size)
}

/// Returns the offset of an inode in bytes.
fn inode(view: &[u8], geometry: &Geometry, number: u32) -> usize {
    let (group, nth) = ((number - 1) / geometry.inodes_per_group, (number - 1) % geometry.inodes_per_group);
    let table = group_of(view, geometry, group).inode_table_lo.get() as usize;
    (table << geometry.block_bits) + nth as usize * usize::from(geometry.inode_size)
}

fn group_of(view: &[u8], geometry: &Geometry, group: u32) -> GroupDescriptor {
    let mut whole = [0; size_of::<GroupDescriptor>()];
    let there = usize::from(geometry.descriptor_size).min(whole.len());
    whole[..there].copy_from_slice(&view[descriptor(geometry, group)..][..there]);
    GroupDescriptor::read_from_bytes(&whole).expect("the size is that of the type")
}

fn inode_of(view: &[u8], geometry: &Geometry, number: u32) -> RawInode {
    let mut whole = [0; size_of::<RawInode>()];
    let there = usize::from(geometry.inode_size).min(whole.len());
    whole[..there].copy_from_slice(&view[inode(view, geometry, number)..][..there]);
    RawInode::read_from_bytes(&whole).expect("the size is that of the type")
}

/// Collects structures.
struct Finder {
    /// The image after journal recovery.
    view: Vec<u8>,
    geometry: Geometry,
    /// Offset of the last logged version of each block, in bytes.
    copies: BTreeMap<u64, usize>,
    sites: BTreeMap<Kind, Vec<Site>>,
}

impl Finder {
    /// Records a structure at `start`, or its version in the journal, which recovery will write there.
    fn note(&mut self, kind: Kind, start: usize, length: usize, owner: u32) {
        let block = (start >> self.geometry.block_bits) as u64;
        let within = start - ((block as usize) << self.geometry.block_bits);
        let start = self.copies.get(&block).map_or(start, |copy| copy + within);
        self.sites.entry(kind).or_default().push(Site { kind, start, length, owner, block });
    }

    fn note_block(&mut self, kind: Kind, block: u64, owner: u32) {
        let size = self.geometry.block_size as usize;
        self.note(kind, block as usize * size, size, owner);
    }

    fn groups(&mut self) {
        let at = shunt_ext4::layout::SUPERBLOCK_OFFSET as usize;
        self.note(Kind::Superblock, at, size_of::<RawSuperblock>(), 0);
        for group in 0..self.geometry.groups {
            let place = descriptor(&self.geometry, group);
            let raw = group_of(&self.view, &self.geometry, group);
            self.note(Kind::Descriptor, place, self.geometry.descriptor_size.into(), group);
            self.note_block(Kind::BlockBitmap, raw.block_bitmap_lo.get().into(), group);
            self.note_block(Kind::InodeBitmap, raw.inode_bitmap_lo.get().into(), group);
        }
    }
}
