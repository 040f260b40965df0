//! The implementations of ext4 that are compared.

use std::fmt;
use std::path::Path;

use crate::context::Bench;

/// An implementation that serves an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The kernel's own ext4, through a loop device.
    Kernel,
    /// Debian's `fuse2fs`.
    Fuse2fs,
    /// The binary under test, over `/dev/fuse`.
    Shunt,
    /// The binary under test, over io_uring.
    ShuntUring,
}

impl Implementation {
    /// All implementations; the kernel, which the others are measured against, first.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Fuse2fs, Self::Shunt, Self::ShuntUring];

    /// The implementations for workloads where the transport makes no difference.
    pub const ONE_TRANSPORT: [Self; 3] = [Self::Kernel, Self::Fuse2fs, Self::Shunt];

    /// Reports whether the implementation is installed and selected by `--peer`; the kernel always is.
    pub fn is_available(self, bench: &Bench) -> bool {
        let installed = match self {
            Self::Kernel => return true,
            Self::Fuse2fs => Path::new("/usr/bin/fuse2fs").exists(),
            Self::Shunt | Self::ShuntUring => bench.programs.shunt.is_some(),
        };
        installed && bench.selects(&self.to_string())
    }
}

impl fmt::Display for Implementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kernel => "kernel",
            Self::Fuse2fs => "fuse2fs",
            Self::Shunt => "shunt",
            Self::ShuntUring => "shunt-uring",
        })
    }
}
