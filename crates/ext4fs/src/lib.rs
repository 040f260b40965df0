//! ext2, ext3 and ext4 images, mounted.
//!
//! [`shunt_ext4`] is the engine, which knows nothing of requests. [`Ext4`] is its thin face: each request is translated,
//! and the engine does it. Inodes have the numbers of the image, so that nothing is to be remembered of what the kernel
//! was told, nor to be forgotten.
//!
//! ```no_run
//! use std::sync::Arc;
//! use shunt_ext4::{FileDevice, Filesystem};
//! use shunt_ext4fs::Ext4;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let image = std::fs::File::open("disk.img")?;
//! let data = image.try_clone()?;
//! let ext4 = Ext4::new(Filesystem::open(Arc::new(FileDevice::new(image, true)?))?, Some(data.into()));
//! let config = ext4.config();
//! shunt_fuse::mount(ext4, config, "/mnt".as_ref(), &Ext4::mount_options())?.wait()?;
//! # Ok(())
//! # }
//! ```

mod answer;
mod attributes;
mod damage;
mod face;
mod flags;
mod listing;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use shunt_ext4::Filesystem;
use shunt_ext4::layout::{Compat, Incompat};
use shunt_fuse::mount::MountOptions;
use shunt_fuse::{Capabilities, Config, Profile};

use damage::Damage;

/// A file system on an image, ready to be served.
pub struct Ext4 {
    filesystem: Filesystem,
    /// The file that the image lies in, from which the kernel may fetch content by itself.
    image: Option<Arc<OwnedFd>>,
    damage: Damage,
}

impl Ext4 {
    /// Serves an open file system. `image` is the file that its device was made of.
    pub fn new(filesystem: Filesystem, image: Option<OwnedFd>) -> Self {
        Self { filesystem, image: image.map(Arc::new), damage: Damage::default() }
    }

    /// The engine.
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// What a session for this file system asks of the kernel.
    pub fn config(&self) -> Config {
        let geometry = self.filesystem.geometry();
        let mut wanted = Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::DONT_MASK
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::EXPORT_SUPPORT
            | Capabilities::DO_READDIRPLUS;
        if geometry.compat.contains(Compat::EXT_ATTR) {
            wanted |= Capabilities::POSIX_ACL;
        }
        // Not the write-back cache, which asks for attributes again after each close.
        Config::new(Profile::Passthrough).without(Capabilities::PASSTHROUGH).want(wanted)
    }

    /// What the kernel must be told: it checks permissions, the face does not. Nothing is written as yet.
    pub fn mount_options() -> MountOptions {
        MountOptions::new().default_permissions(true).read_only(true)
    }

    /// Without the key, encrypted files cannot be opened: opens are asked for only where there may be some.
    fn opens_matter(&self) -> bool {
        self.filesystem.geometry().incompat.contains(Incompat::ENCRYPT)
    }
}

impl std::fmt::Debug for Ext4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ext4").field("kind", &self.filesystem.kind()).finish_non_exhaustive()
    }
}
