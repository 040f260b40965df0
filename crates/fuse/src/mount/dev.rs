//! The device number of a file system.

use std::fmt;

/// The device number of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dev {
    /// 0 for a plain FUSE mount, the disk's for fuseblk.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl fmt::Display for Dev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}
