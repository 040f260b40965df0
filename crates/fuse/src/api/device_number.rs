//! Device numbers in the 32-bit encoding of the kernel (`new_encode_dev`), as FUSE transfers them.

/// Encodes a device number: the low 8 bits of the minor number, 12 bits of the major number, the rest of the minor number.
pub fn encode_device(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

/// Decodes a device number into its major and minor number.
pub fn decode_device(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xfff00)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for device in [(0, 0), (8, 1), (259, 0x12345), (0xfff, 0xfffff)] {
            assert_eq!(decode_device(encode_device(device.0, device.1)), device);
        }
    }
}
