//! Marks of a session, by which it passes numbers to the next daemon ([`shunt_fuse::takeover::Takeover::mark`]).
//!
//! A mark is either a node id, which has one of the highest two bits set or is below 2^61, or a device with its index.

use crate::lower::devices::Numbered;

const DEVICE: u64 = 1 << 61;

/// Encodes a device; `None` if its numbers are too large.
pub(crate) fn mark((index, (major, minor)): Numbered) -> Option<u64> {
    let fits = major < 1 << 12 && minor < 1 << 20;
    fits.then_some(DEVICE | u64::from(index) << 32 | u64::from(major) << 20 | u64::from(minor))
}

/// Decodes the device of a mark; `None` if the mark is a node id.
pub(crate) fn device(mark: u64) -> Option<Numbered> {
    let (major, minor) = ((mark >> 20) as u32 & 0xfff, mark as u32 & 0xf_ffff);
    (mark >> 48 == DEVICE >> 48).then_some(((mark >> 32) as u16, (major, minor)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower::node_id::{Ident, MAX_ENCODED_MOUNTS};

    #[test]
    fn no_id_of_a_node_is_taken_for_a_device() {
        for mount in 0..=MAX_ENCODED_MOUNTS {
            for (ino, generation) in [(0, 0), (1, 1 << 31), ((1 << 26) - 1, u32::MAX)] {
                let id = Ident { mount, ino, generation }.id().unwrap();
                assert_eq!(device(id.0), None, "{id}");
            }
        }
        assert_eq!(device((1 << 61) - 1), None, "an index of the table is not a device");
        for new in [(0, (0, 0)), (u16::MAX, (0xfff, 0xf_ffff))] {
            assert_eq!(device(mark(new).unwrap()), Some(new));
        }
    }
}
