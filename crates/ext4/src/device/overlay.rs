//! Copy-on-write overlay: the underlying device is never written; changes stay in memory.

use std::collections::BTreeMap;
use std::io;

use parking_lot::RwLock;

use super::{Device, within};

/// Size in bytes of one overlay page.
const PAGE_BYTES: usize = 4096;

/// A read-only device with its changes in memory: allows journal recovery without modifying the image.
#[derive(Debug)]
pub struct Overlay<D> {
    device: D,
    pages: RwLock<BTreeMap<u64, Box<[u8; PAGE_BYTES]>>>,
    /// Maximum number of pages in memory.
    room: usize,
}

impl<D: Device> Overlay<D> {
    /// Creates an overlay that keeps at most `room` bytes of changes.
    pub fn new(device: D, room: u64) -> Self {
        Self { device, pages: RwLock::default(), room: (room / PAGE_BYTES as u64) as usize }
    }

    /// Returns the memory used for changes, in bytes.
    pub fn changed(&self) -> u64 {
        (self.pages.read().len() * PAGE_BYTES) as u64
    }

    /// Returns the offsets of the changed pages, in bytes, and the page size.
    pub(crate) fn changes(&self) -> (Vec<u64>, u64) {
        let page = PAGE_BYTES as u64;
        (self.pages.read().keys().map(|number| number * page).collect(), page)
    }

    fn original(&self, page: u64) -> io::Result<Box<[u8; PAGE_BYTES]>> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        let start = page * PAGE_BYTES as u64;
        let available = (self.device.size() - start).min(PAGE_BYTES as u64) as usize;
        self.device.read_at(start, &mut bytes[..available])?;
        Ok(bytes)
    }
}

/// Splits a range at page boundaries. Yields page number, offset within the page, and length.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let count = (PAGE_BYTES - within).min(length - done);
        done += count;
        Some((at / PAGE_BYTES as u64, within, count))
    })
}

impl<D: Device> Device for Overlay<D> {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buffer)?;
        let pages = self.pages.read();
        if pages.is_empty() {
            return Ok(());
        }
        let mut rest = buffer;
        for (page, within, count) in parts(offset, rest.len()) {
            let (part, after) = rest.split_at_mut(count);
            if let Some(bytes) = pages.get(&page) {
                part.copy_from_slice(&bytes[within..within + count]);
            }
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        within(self.size(), offset, data.len())?;
        let mut pages = self.pages.write();
        let mut rest = data;
        for (page, within, count) in parts(offset, data.len()) {
            let (part, after) = rest.split_at(count);
            rest = after;
            if !pages.contains_key(&page) {
                if pages.len() >= self.room {
                    return Err(rustix::io::Errno::NOSPC.into());
                }
                pages.insert(page, self.original(page)?);
            }
            if let Some(bytes) = pages.get_mut(&page) {
                bytes[within..within + count].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn backing_offset(&self, offset: u64, length: u64) -> Option<u64> {
        let end = offset.checked_add(length)?.div_ceil(PAGE_BYTES as u64);
        let changed = self.pages.read().range(offset / PAGE_BYTES as u64..end).next().is_some();
        if changed { None } else { self.device.backing_offset(offset, length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    proptest::proptest! {
        #[test]
        fn reads_what_was_written_and_leaves_the_device_alone(
            writes in proptest::collection::vec((0_u64..19_000, proptest::collection::vec(0_u8.., 0..9000)), 0..20),
        ) {
            let original: Vec<u8> = (0..20_000_u32).map(|n| n as u8).collect();
            let overlay = Overlay::new(std::sync::Arc::new(MemoryDevice::new(original.clone())), 1 << 20);
            let mut model = original.clone();
            for (offset, data) in &writes {
                let end = *offset as usize + data.len();
                let fits = end <= model.len();
                proptest::prop_assert_eq!(overlay.write_at(*offset, data).is_ok(), fits);
                if fits {
                    model[*offset as usize..end].copy_from_slice(data);
                }
            }
            let mut seen = vec![0; model.len()];
            overlay.read_at(0, &mut seen).unwrap();
            proptest::prop_assert!(seen == model);
            proptest::prop_assert!(overlay.device.bytes() == original);
        }
    }

    #[test]
    fn memory_is_bounded() {
        let overlay = Overlay::new(MemoryDevice::new(vec![0; 1 << 20]), 8192);
        overlay.write_at(0, &[1; 8192]).unwrap();
        assert_eq!(overlay.write_at(8192, &[1]).unwrap_err().raw_os_error(), Some(28));
        overlay.write_at(100, &[2; 100]).unwrap();
        assert_eq!(overlay.changed(), 8192);
    }
}
