//! Checksum of a GPT: CRC-32 of ISO 3309, bits reflected.

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut sum = n as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 != 0 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
            bit += 1;
        }
        table[n] = sum;
        n += 1;
    }
    table
}

static TABLE: [u32; 256] = table();

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, &byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
