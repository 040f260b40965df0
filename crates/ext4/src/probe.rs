//! Recognises other file systems and container formats, for a helpful error message.

use crate::device::Device;

/// Offset in bytes, magic at that offset, and the format it indicates.
const MAGICS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "XFS"),
    (0x1_0040, b"_BHRfS_M", "btrfs"),
    (0, b"hsqs", "squashfs"),
    (1024, &[0xe2, 0xe1, 0xf5, 0xe0], "EROFS"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (0x36, b"FAT", "FAT"),
    (0x52, b"FAT32", "FAT32"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0, b"LUKS\xba\xbe", "a LUKS encrypted volume: open it with cryptsetup first"),
    (0x218, b"LVM2", "an LVM physical volume: give one of its logical volumes"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"QFI\xfb", "a QEMU qcow2 image: convert it with `qemu-img convert -O raw` first"),
    (0, b"KDMV", "a VMware disk image: convert it with `qemu-img convert -O raw` first"),
    (0, &[0x1f, 0x8b], "a gzip file: unpack it first"),
    (0, &[0xfd, b'7', b'z', b'X', b'Z'], "an xz file: unpack it first"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "a zstd file: unpack it first"),
    (0, &[0x3a, 0xff, 0x26, 0xed], "an Android sparse image: convert it with `simg2img` first"),
    (512, b"EFI PART", "a disk with a GPT partition table: give a partition"),
    (510, &[0x55, 0xaa], "a disk with a partition table: give a partition"),
];

/// Returns a description of what the image looks like.
pub(crate) fn detect_format(device: &dyn Device) -> &'static str {
    let mut buffer = [0; 16];
    for &(offset, magic, what) in MAGICS {
        let buffer = &mut buffer[..magic.len()];
        if device.read_at(offset, buffer).is_ok() && buffer == magic {
            return what;
        }
    }
    let mut start = [0; 4096];
    let readable = (device.size() as usize).min(start.len());
    match device.read_at(0, &mut start[..readable]) {
        Ok(()) if readable == 0 => "an empty file",
        Ok(()) if start[..readable].iter().all(|&byte| byte == 0) => "zeros",
        _ => "an unknown format",
    }
}
