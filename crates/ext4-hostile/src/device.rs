//! A device that panics on invalid accesses by the engine.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use shunt_ext4::Device;

use crate::mutate::{Mutant, PAGE};

/// Maximum number of reads, writes and discards per use of an image. The longest valid uses need a tenth of it.
const MAX_ACCESSES: u64 = 400_000;

/// A mutant as a device. Accesses outside of it, and an excessive number of accesses, panic.
pub struct Guarded {
    base: &'static [u8],
    pages: RwLock<BTreeMap<usize, Box<[u8]>>>,
    uses: AtomicU64,
    writable: bool,
}

impl Guarded {
    /// Creates a writable device; the mutant itself stays unchanged.
    pub fn new(mutant: &Mutant) -> Self {
        Self {
            base: &mutant.image.bytes,
            pages: RwLock::new(mutant.pages.clone()),
            uses: AtomicU64::new(0),
            writable: true,
        }
    }

    /// Creates a read-only device, on which writes panic.
    pub fn read_only(mutant: &Mutant) -> Self {
        Self { writable: false, ..Self::new(mutant) }
    }

    /// Returns the number of reads, writes and discards.
    pub fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// Returns a copy of the current content.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.base.len()];
        self.read_at(0, &mut bytes).expect("reads from memory do not fail");
        bytes
    }

    fn check(&self, offset: u64, length: u64) {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.size()),
            "access to {length} bytes at {offset} beyond the device of {} bytes",
            self.size()
        );
        let uses = self.uses.fetch_add(1, Ordering::Relaxed);
        assert!(uses < MAX_ACCESSES, "{uses} device accesses: the operation does not terminate");
    }

    fn change(&self, offset: u64, length: usize, mut put: impl FnMut(&mut [u8], usize)) {
        assert!(self.writable, "write of {length} bytes at {offset} to a read-only device");
        let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
        for (page, within, done, count) in parts(offset as usize, length) {
            let original = || self.base[page * PAGE..][..PAGE].into();
            let page = pages.entry(page).or_insert_with(original);
            put(&mut page[within..within + count], done);
        }
    }
}

/// Splits a range at page boundaries. Yields page, offset within the page, bytes before the part, and length.
fn parts(offset: usize, length: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let (page, within) = ((offset + done) / PAGE, (offset + done) % PAGE);
        let (before, count) = (done, (PAGE - within).min(length - done));
        done += count;
        (count > 0).then_some((page, within, before, count))
    })
}

impl Device for Guarded {
    fn size(&self) -> u64 {
        self.base.len() as u64
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer.len() as u64);
        buffer.copy_from_slice(&self.base[offset as usize..][..buffer.len()]);
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        for (page, within, before, count) in parts(offset as usize, buffer.len()) {
            if let Some(page) = pages.get(&page) {
                buffer[before..before + count].copy_from_slice(&page[within..within + count]);
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64);
        self.change(offset, data.len(), |part, at| part.copy_from_slice(&data[at..at + part.len()]));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length);
        // Discarded bytes are undefined afterwards.
        self.change(offset, length as usize, |part, _| part.fill(0xdd));
        Ok(())
    }
}
