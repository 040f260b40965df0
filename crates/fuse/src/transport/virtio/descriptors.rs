//! Walks the descriptors of a chain in the guest's memory, through an indirect table too. Each descriptor is read once; a table
//! that loops ends after as many descriptors as it has.

use virtio_bindings::bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

use super::memory::Mapped;

/// Size of a descriptor in bytes.
const DESCRIPTOR_BYTES: u64 = 16;

/// An iterator over the descriptors of one chain. It ends early at an index or an address that is invalid.
pub(super) struct Descriptors {
    memory: Mapped,
    table: GuestAddress,
    /// Number of descriptors in the table.
    entries: u32,
    /// Index of the next descriptor; `None` at the end.
    next: Option<u16>,
    /// Number of descriptors that may still follow.
    left: u32,
    is_indirect: bool,
}

impl Descriptors {
    /// Starts at descriptor `head` of a table of `entries` descriptors.
    pub(super) fn new(memory: Mapped, table: GuestAddress, entries: u16, head: u16) -> Self {
        let entries = u32::from(entries);
        Self { memory, table, entries, next: Some(head), left: entries, is_indirect: false }
    }

    fn read(&mut self) -> Option<Descriptor> {
        let index = self.next.take().filter(|index| u32::from(*index) < self.entries)?;
        self.left = self.left.checked_sub(1)?;
        let address = self.table.0.checked_add(DESCRIPTOR_BYTES * u64::from(index))?;
        self.memory.read_obj(GuestAddress(address)).ok()
    }

    /// Continues in the table that an indirect descriptor refers to. A table in a table is invalid.
    fn enter(&mut self, table: &Descriptor) -> Option<()> {
        let entries = u32::from(u16::try_from(u64::from(table.len()) / DESCRIPTOR_BYTES).ok()?);
        if self.is_indirect || u64::from(table.len()) % DESCRIPTOR_BYTES != 0 {
            return None;
        }
        (self.table, self.entries, self.left) = (table.addr(), entries, entries);
        (self.next, self.is_indirect) = (Some(0), true);
        Some(())
    }
}

impl Iterator for Descriptors {
    type Item = Descriptor;

    fn next(&mut self) -> Option<Descriptor> {
        loop {
            let descriptor = self.read()?;
            if u32::from(descriptor.flags()) & VRING_DESC_F_INDIRECT != 0 {
                self.enter(&descriptor)?;
                continue;
            }
            if u32::from(descriptor.flags()) & VRING_DESC_F_NEXT != 0 {
                self.next = Some(descriptor.next());
            }
            return Some(descriptor);
        }
    }
}
