//! Fields of a superblock as text: the label and the UUID of a file system.

use shunt_ext4::layout::RawSuperblock;

/// The label of a file system; empty where it has none.
pub fn label(raw: &RawSuperblock) -> String {
    let label = raw.volume_name.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(label).into_owned()
}

/// The UUID of a file system, with hyphens.
pub fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
