//! In-memory state of the orphans: the slots of the orphan file, and the list that begins in the superblock.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::buffer::BlockKind;

/// Location of each orphan. Locked before anything in the metadata cache.
#[derive(Default)]
pub(crate) struct Orphans(pub(crate) Mutex<OrphanLists>);

#[derive(Default)]
pub(crate) struct OrphanLists {
    pub(crate) file: Option<OrphanFileSlots>,
    pub(crate) list: OrphanList,
}

impl OrphanLists {
    /// Returns all orphans.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let file = self.file.iter().flat_map(|file| file.taken.keys().copied());
        file.chain(self.list.0.iter().copied()).collect()
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.file.as_ref().is_some_and(|file| file.contains(number)) || self.list.contains(number)
    }
}

impl Orphans {
    /// Reports whether the orphan file lists any inode.
    pub(crate) fn any_in_file(&self) -> bool {
        self.0.lock().file.as_ref().is_some_and(|file| !file.taken.is_empty())
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.lock().contains(number)
    }
}

/// The slots of the orphan file.
pub(crate) struct OrphanFileSlots {
    pub(crate) kind: BlockKind,
    pub(crate) blocks: Vec<u64>,
    pub(crate) per_block: usize,
    /// The slot of each inode.
    pub(crate) taken: HashMap<u32, usize>,
    pub(crate) free: Vec<usize>,
}

/// The linked list on the device, with the most recently added inode at the end.
#[derive(Default)]
pub(crate) struct OrphanList(pub(crate) Vec<u32>);

impl OrphanFileSlots {
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.taken.contains_key(&number)
    }
}

impl OrphanList {
    pub(crate) fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }
}
