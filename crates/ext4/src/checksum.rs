//! crc32c as ext4 uses it: without the final inversion, so that each checksum is the seed of the next.

/// Returns the checksum of `bytes`, continued from `seed`.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    // The crate inverts at both ends, as is usual for CRCs.
    !::crc32c::crc32c_append(!seed, bytes)
}

/// Returns the checksum of `bytes` with the 32-bit field at offset `field`, the checksum itself, taken as zero.
pub(crate) fn crc32c_without(seed: u32, bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field);
    let after = &rest[4..];
    crc32c(crc32c(crc32c(seed, before), &[0; 4]), after)
}

/// CRC-16 (polynomial 0xa001, reflected) of group descriptors without `metadata_csum`.
pub(crate) fn crc16(mut sum: u16, bytes: &[u8]) -> u16 {
    for &byte in bytes {
        sum ^= u16::from(byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0xa001 } else { sum >> 1 };
        }
    }
    sum
}

/// Computes the checksum seed of the structures that belong to an inode.
pub(crate) fn owner_seed(seed: u32, number: u32, generation: u32) -> u32 {
    crc32c(crc32c(seed, &number.to_le_bytes()), &generation.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sums() {
        // Check values of the CRC catalogue: CRC-32/ISCSI and CRC-16/MODBUS (this CRC with initial value ffff).
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0xffff, b"123456789"), 0x4b37);
    }

    #[test]
    fn checksum_field_counts_as_zero() {
        let mut bytes = *b"abcdefghijkl";
        let sum = crc32c_without(7, &bytes, 4);
        bytes[4..8].fill(0);
        assert_eq!(sum, crc32c(7, &bytes));
    }
}
