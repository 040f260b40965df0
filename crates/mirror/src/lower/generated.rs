//! Pseudo file systems such as procfs, whose files the kernel generates on read: their size is 0 or one page, whatever
//! they contain.
//!
//! The page cache ends at the file size, so such files are read and written with direct I/O.

use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Magic numbers of pseudo file systems, and their types in the mount table.
const KINDS: [(i64, &str); 11] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x6265_6570, "configfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0x6165_676c, "pstore"),
];

/// Reports whether a file is on a pseudo file system.
pub(super) fn is_generated(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|statfs| KINDS.iter().any(|(magic, _)| *magic == statfs.f_type))
}

/// Reports whether a pseudo file system is mounted at a directory or below; `true` in doubt.
pub(super) fn is_below(directory: &Path) -> bool {
    let Ok(directory) = directory.canonicalize() else { return true };
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return true };
    table.split(|&byte| byte == b'\n').any(|line| names_one_below(line, &directory))
}

/// Parses a line of the mount table: number, parent, device, root, mount point, options, more options, `-`, type, ...
fn names_one_below(line: &[u8], directory: &Path) -> bool {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let kind = fields.iter().position(|field| *field == b"-").and_then(|dash| fields.get(dash + 1));
    let generated = kind.is_some_and(|kind| KINDS.iter().any(|(_, name)| name.as_bytes() == *kind));
    let Some(at) = fields.get(4).filter(|_| generated) else { return false };
    // An escaped mount point is not decoded, but assumed to be below.
    at.contains(&b'\\') || Path::new(std::ffi::OsStr::from_bytes(at)).starts_with(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read() {
        let line = b"24 30 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw";
        assert!(names_one_below(line, Path::new("/")));
        assert!(names_one_below(line, Path::new("/proc")));
        assert!(!names_one_below(line, Path::new("/pro")));
        assert!(!names_one_below(line, Path::new("/home")));
        let other = b"25 30 0:23 / /home rw shared:14 - ext4 /dev/proc rw";
        assert!(!names_one_below(other, Path::new("/")));
        assert!(!names_one_below(b"", Path::new("/")));
        assert!(names_one_below(b"1 2 0:1 / /a\\040b rw - sysfs x rw", Path::new("/home")));
    }
}
