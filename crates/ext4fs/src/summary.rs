//! The properties of a file system that determine how it is mounted.

use shunt_ext4::Filesystem;
use shunt_ext4::layout::Compat;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::{Capabilities, Config, Profile};

/// The properties of a file system that determine how it is mounted. With them a mount can be made before the file system is
/// opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The mount accepts changes.
    pub writable: bool,
    /// The file system may hold extended attributes.
    pub xattrs: bool,
    /// The permission bits of the root directory.
    pub root_permissions: u16,
}

impl Summary {
    /// Returns the properties of an open file system.
    pub fn of(filesystem: &Filesystem) -> Self {
        Self {
            writable: filesystem.is_writable(),
            xattrs: may_have_xattrs(filesystem),
            root_permissions: filesystem.inode(shunt_ext4::ROOT).map_or(0, |root| root.permissions),
        }
    }

    /// Returns the session configuration. With `mapped` the kernel reads, and writes, files directly.
    pub fn config(self, mapped: bool) -> Config {
        let capabilities = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DONT_MASK
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::DO_READDIRPLUS;
        let acls = if self.xattrs { Capabilities::POSIX_ACL } else { Capabilities::empty() };
        let config = match mapped {
            // All content bypasses the daemon, appends included.
            true => Config::new(Profile::Passthrough).trust_open_flags(),
            false if self.writable => Config::new(Profile::Writeback),
            // The write-back cache requests attributes again after each close.
            false => Config::new(Profile::Passthrough).without(Capabilities::PASSTHROUGH),
        };
        config.request(capabilities | acls)
    }

    /// Returns the mount options. The kernel checks permissions (`default_permissions`); this crate does not.
    pub fn mount_options(self) -> MountOptions {
        MountOptions::new()
            .default_permissions(true)
            .read_only(!self.writable)
            .root_permissions(self.root_permissions)
    }
}

pub(crate) fn may_have_xattrs(filesystem: &Filesystem) -> bool {
    filesystem.is_writable() || filesystem.geometry().compat.contains(Compat::EXT_ATTR)
}
