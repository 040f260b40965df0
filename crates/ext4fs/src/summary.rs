//! What must be known of a file system to mount it.

use shunt_ext4::Filesystem;
use shunt_ext4::layout::Compat;
use shunt_fuse::mount::MountOptions;
use shunt_fuse::{Capabilities, Config, Profile};

/// What must be known of a file system to mount it: a mount can be made of this alone, and the file system be opened after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Anything may be changed.
    pub writable: bool,
    /// There may be extended attributes.
    pub xattrs: bool,
    /// The permission bits of the root directory.
    pub root_permissions: u16,
}

impl Summary {
    /// That of an open file system.
    pub fn of(filesystem: &Filesystem) -> Self {
        Self {
            writable: filesystem.is_writable(),
            xattrs: may_have_xattrs(filesystem),
            root_permissions: filesystem.inode(shunt_ext4::ROOT).map_or(0, |root| root.permissions),
        }
    }

    /// What a session asks of the kernel. `mapped`: the kernel reads, and writes, files by itself.
    pub fn config(self, mapped: bool) -> Config {
        let wanted = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DONT_MASK
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::DO_READDIRPLUS;
        let acls = if self.xattrs { Capabilities::POSIX_ACL } else { Capabilities::empty() };
        let config = match mapped {
            // Content all goes past the daemon: appends too.
            true => Config::new(Profile::Passthrough).trust_open_flags(),
            false if self.writable => Config::new(Profile::Writeback),
            // The write-back cache asks for attributes again after each close.
            false => Config::new(Profile::Passthrough).without(Capabilities::PASSTHROUGH),
        };
        config.request(wanted | acls)
    }

    /// What the kernel must be told: it checks permissions, the face does not.
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
