//! Inode numbers of several devices, shown as one.

use parking_lot::RwLock;

/// Devices seen so far. The first is the source's own: its inode numbers are shown as they are.
///
/// Those of other devices get the index of their device in the top 16 bits, so that two files never share a number.
/// (Numbers that use these bits already are mixed, not lost: within one device they stay distinct.)
#[derive(Debug)]
pub struct Devices {
    seen: RwLock<Vec<(u32, u32)>>,
}

impl Devices {
    /// A list with the source's own device, as (major, minor).
    pub fn new(own: (u32, u32)) -> Self {
        Self { seen: RwLock::new(vec![own]) }
    }

    /// The index of a device. Beyond 65,535 devices the last index is shared.
    pub fn index(&self, device: (u32, u32)) -> u16 {
        let position = |seen: &[(u32, u32)]| seen.iter().position(|&known| known == device);
        if let Some(index) = position(&self.seen.read()) {
            return index as u16;
        }
        let mut seen = self.seen.write();
        position(&seen).unwrap_or_else(|| {
            if seen.len() < usize::from(u16::MAX) {
                seen.push(device);
            }
            seen.len() - 1
        }) as u16
    }

    /// The number shown for an inode of the device with this index.
    pub fn shown_ino(index: u16, ino: u64) -> u64 {
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
}
