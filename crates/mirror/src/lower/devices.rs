//! Mapping of inode numbers from several devices into one number space.

use std::fmt;
use std::sync::OnceLock;

use parking_lot::RwLock;

/// Index of a device and its number, as (major, minor).
pub(crate) type Numbered = (u16, (u32, u32));

/// A device number that does not exist.
const NONE: (u32, u32) = (u32::MAX, u32::MAX);

/// All devices seen. The first is the source's own: its inode numbers are shown unchanged.
///
/// Inode numbers of another device have its index XORed into the top 16 bits, so that two files never share a number.
/// (Numbers that already use these bits are changed, but stay distinct within one device.)
pub(crate) struct Devices {
    seen: RwLock<Vec<(u32, u32)>>,
    /// Called for each device that was not seen before.
    on_new: OnceLock<Box<dyn Fn(Numbered) + Send + Sync>>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Devices {
    /// Creates a list with the source's own device, as (major, minor).
    pub(crate) fn new(own: (u32, u32)) -> Self {
        Self { seen: RwLock::new(vec![own]), on_new: OnceLock::new() }
    }

    /// Restores the indices of an earlier process, and calls `on_new` for each new device.
    pub(crate) fn keep(&self, known: &[Numbered], on_new: Box<dyn Fn(Numbered) + Send + Sync>) {
        let mut seen = self.seen.write();
        for &(index, device) in known {
            if index == 0 || device == seen[0] {
                continue;
            }
            let position = usize::from(index);
            if seen.len() <= position {
                seen.resize(position + 1, NONE);
            }
            seen[position] = device;
        }
        let _ = self.on_new.set(on_new);
    }

    /// Returns the index of a device. Beyond 65,535 devices the last index is shared.
    pub(crate) fn index(&self, device: (u32, u32)) -> u16 {
        let position = |seen: &[(u32, u32)]| seen.iter().position(|&known| known == device);
        if let Some(index) = position(&self.seen.read()) {
            return index as u16;
        }
        let mut seen = self.seen.write();
        position(&seen).unwrap_or_else(|| {
            if seen.len() < usize::from(u16::MAX) {
                seen.push(device);
                if let Some(on_new) = self.on_new.get() {
                    on_new(((seen.len() - 1) as u16, device));
                }
            }
            seen.len() - 1
        }) as u16
    }

    /// Returns the number shown for an inode of the device with this index.
    pub(crate) fn shown_ino(index: u16, ino: u64) -> u64 {
        ino ^ u64::from(index) << 48
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_own_numbers_are_unchanged_and_others_distinct() {
        let devices = Devices::new((8, 1));
        assert_eq!(devices.index((8, 1)), 0);
        assert_eq!(Devices::shown_ino(0, 12), 12);
        let other = devices.index((8, 2));
        assert_eq!(other, devices.index((8, 2)));
        assert_ne!(Devices::shown_ino(other, 12), 12);
    }

    #[test]
    fn indices_are_kept_whatever_comes_first() {
        let devices = Devices::new((8, 1));
        let reported = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let on_new = reported.clone();
        let forged = [(0, (9, 9)), (1, (8, 1))];
        devices.keep(
            &[[(3, (8, 3)), (1, (8, 2))], forged].concat(),
            Box::new(move |new| on_new.lock().push(new)),
        );
        assert_eq!(devices.index((8, 4)), 4);
        assert_eq!([(8, 1), (8, 2), (8, 3)].map(|device| devices.index(device)), [0, 1, 3]);
        assert_eq!(*reported.lock(), [(4, (8, 4))]);
    }
}
