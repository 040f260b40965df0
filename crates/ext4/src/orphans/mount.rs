//! Orphan processing at mount.

use super::{CREDITS, remove};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Kind;
use crate::orphan_slots::OrphanFileSlots;
use crate::orphan_slots::OrphanList;

impl Filesystem {
    /// Truncates the orphans that a crash left, and frees those without links if `free`; returns their number.
    pub(crate) fn process_orphans(&self, free: bool) -> Result<u32> {
        let numbers = {
            let mut state = self.orphans.0.lock();
            state.file = OrphanFileSlots::read(self)?;
            state.list = OrphanList::read(self)?;
            state.numbers()
        };
        let mut processed = 0;
        for number in numbers {
            let inode = match self.inode(number) {
                // A slot may list an inode that is free already.
                Err(Error::NotFound) => continue,
                inode => inode?,
            };
            if inode.links == 0 {
                if !free {
                    continue;
                }
                self.evict_inode(number)?;
            } else {
                let _lock = self.locks.write(number);
                let mut inode = inode;
                if matches!(inode.kind, Kind::Regular) {
                    let size = inode.size;
                    self.cut(&mut inode, size)?;
                }
                let mut handle = self.store.begin(1 + CREDITS)?;
                remove(self, &mut handle, &mut inode)?;
                inode.save(&mut handle)?;
                handle.complete();
            }
            processed += 1;
        }
        Ok(processed)
    }
}
