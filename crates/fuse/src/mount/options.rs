//! Mount options, independent of the mount method.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{MountError, MountMethod};

/// The type of the file system's root inode. The mount point must be of the same type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootKind {
    /// A directory.
    #[default]
    Directory,
    /// A regular file.
    File,
}

impl RootKind {
    /// Returns the file type bits.
    fn mode(self) -> u32 {
        match self {
            RootKind::Directory => 0o040000,
            RootKind::File => 0o100000,
        }
    }
}

/// When the kernel updates access times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// Only if the old access time is not newer than the modification time, or is a day old. The kernel's default.
    #[default]
    Relative,
    /// Never.
    Never,
    /// At every access.
    Strict,
}

/// The options of a mount.
///
/// The defaults are those of the kernel: read-write, `relatime`, visible only to the user who mounts; and `nosuid,nodev`, as for
/// every mount by a user unless root overrides it.
#[derive(Clone, Debug)]
pub struct MountOptions {
    pub(super) fsname: OsString,
    pub(super) subtype: Option<String>,
    pub(super) allow_other: bool,
    pub(super) default_permissions: bool,
    pub(super) read_only: bool,
    pub(super) nosuid: bool,
    pub(super) nodev: bool,
    pub(super) noexec: bool,
    pub(super) nosymfollow: bool,
    pub(super) atime: Option<Atime>,
    pub(super) nodiratime: bool,
    pub(super) lazytime: bool,
    pub(super) sync: bool,
    pub(super) dirsync: bool,
    pub(super) max_read: Option<u32>,
    pub(super) root: RootKind,
    pub(super) root_permissions: u16,
    pub(super) blkdev: Option<PathBuf>,
    pub(super) blksize: Option<u32>,
    pub(super) method: Option<MountMethod>,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            fsname: OsString::from("shunt"),
            subtype: None,
            allow_other: false,
            default_permissions: false,
            read_only: false,
            nosuid: true,
            nodev: true,
            noexec: false,
            nosymfollow: false,
            atime: None,
            nodiratime: false,
            lazytime: false,
            sync: false,
            dirsync: false,
            max_read: None,
            root: RootKind::default(),
            root_permissions: 0,
            blkdev: None,
            blksize: None,
            method: None,
        }
    }
}

macro_rules! switches {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, on: bool) -> Self {
            self.$name = on;
            self
        })*
    };
}

impl MountOptions {
    /// Returns the default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the source that the mount table shows, `shunt` by default. Ignored with a block device.
    #[must_use]
    pub fn fsname(mut self, name: impl AsRef<OsStr>) -> Self {
        self.fsname = name.as_ref().to_owned();
        self
    }

    /// Sets the part after `fuse.` in the type that the mount table shows, for example `shunt.mirror`.
    #[must_use]
    pub fn subtype(mut self, name: impl Into<String>) -> Self {
        self.subtype = Some(name.into());
        self
    }

    switches! {
        /// Allows access for users other than the one who mounts.
        allow_other,
        /// Makes the kernel check mode bits, so that the server need not.
        default_permissions,
        /// Mounts read-only.
        read_only,
        /// Ignores set-user-id and set-group-id bits. On by default.
        nosuid,
        /// Prevents opening device nodes. On by default.
        nodev,
        /// Prevents executing files.
        noexec,
        /// Does not follow symbolic links; they can still be read (Linux 5.10). `fusermount3` does not support it.
        nosymfollow,
        /// Does not update access times of directories.
        nodiratime,
        /// Keeps changed times in memory until the inode is written for another reason.
        lazytime,
        /// Makes every write synchronous.
        sync,
        /// Makes every change of a directory synchronous.
        dirsync,
    }

    /// Sets when access times are updated.
    #[must_use]
    pub fn atime(mut self, atime: Atime) -> Self {
        self.atime = Some(atime);
        self
    }

    /// Sets the maximum size of a READ in bytes. The kernel enforces at least 4096; without it the limit of INIT applies.
    #[must_use]
    pub fn max_read(mut self, bytes: u32) -> Self {
        self.max_read = Some(bytes);
        self
    }

    /// Sets the type of the root inode, a directory by default.
    #[must_use]
    pub fn root(mut self, kind: RootKind) -> Self {
        self.root = kind;
        self
    }

    /// Sets the permission bits of the root, none by default. The kernel asks for the root's attributes before it uses them; but
    /// it drops a reply that a notification about the root overtook, and then uses these bits. `fusermount3` does not support
    /// them.
    #[must_use]
    pub fn root_permissions(mut self, bits: u16) -> Self {
        self.root_permissions = bits & 0o7777;
        self
    }

    /// Returns the kernel's `rootmode`.
    pub(super) fn root_mode(&self) -> u32 {
        self.root.mode() | u32::from(self.root_permissions)
    }

    /// Mounts as `fuseblk` over this block device, which requires root. The kernel then opens the device itself, sends DESTROY at
    /// unmount and waits for the reply.
    #[must_use]
    pub fn blkdev(mut self, device: impl AsRef<Path>) -> Self {
        self.blkdev = Some(device.as_ref().to_owned());
        self
    }

    /// Sets the block size of a `fuseblk` mount in bytes: a power of two from 512 to the page size, 512 by default. The mount
    /// table of newer kernels shows the page size instead.
    #[must_use]
    pub fn blksize(mut self, bytes: u32) -> Self {
        self.blksize = Some(bytes);
        self
    }

    /// Restricts mounting to this method.
    #[must_use]
    pub fn method(mut self, method: MountMethod) -> Self {
        self.method = Some(method);
        self
    }

    /// Reports whether the mount will be read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Reports whether reads update access times.
    pub fn keeps_read_times(&self) -> bool {
        self.atime_or_default() != Atime::Never && !self.read_only
    }

    /// Returns when access times are to be updated, where that was set explicitly.
    pub fn explicit_atime(&self) -> Option<Atime> {
        self.atime
    }

    /// Reports whether access times of directories are not updated.
    pub fn is_nodiratime(&self) -> bool {
        self.nodiratime
    }

    /// Returns when access times are updated.
    pub(super) fn atime_or_default(&self) -> Atime {
        self.atime.unwrap_or_default()
    }

    /// Reports whether set-user-id and set-group-id bits will have an effect.
    pub fn is_suid(&self) -> bool {
        !self.nosuid
    }

    /// Reports whether other users will have access.
    pub fn is_allow_other(&self) -> bool {
        self.allow_other
    }

    /// Returns the source that the mount table will show.
    pub(super) fn source(&self) -> &OsStr {
        self.blkdev.as_ref().map_or(&self.fsname, |d| d.as_os_str())
    }

    /// Returns the kernel's name of the file system type, without the subtype.
    pub(super) fn fstype(&self) -> &'static str {
        if self.blkdev.is_some() { "fuseblk" } else { "fuse" }
    }

    /// Returns the options of FUSE itself as the kernel and `fusermount3` spell them.
    pub(super) fn fuse_keys(&self) -> (Vec<(&'static str, String)>, Vec<&'static str>) {
        let mut values = Vec::new();
        if let Some(bytes) = self.max_read {
            values.push(("max_read", bytes.to_string()));
        }
        if let (Some(bytes), true) = (self.blksize, self.blkdev.is_some()) {
            values.push(("blksize", bytes.to_string()));
        }
        let mut flags = Vec::new();
        if self.default_permissions {
            flags.push("default_permissions");
        }
        if self.allow_other {
            flags.push("allow_other");
        }
        (values, flags)
    }

    /// Refuses options that no method supports, before anything is opened.
    pub(super) fn check(&self) -> Result<(), MountError> {
        if self.source().as_bytes().contains(&0) || self.source().is_empty() {
            return Err(MountError::option("fsname", "must not be empty or contain a NUL"));
        }
        let is_bad = |subtype: &String| subtype.is_empty() || subtype.contains([',', '\0', '\\', ' ', '\n']);
        if self.subtype.as_ref().is_some_and(is_bad) {
            return Err(MountError::option(
                "subtype",
                "must not be empty or contain a comma, backslash, space, newline or NUL",
            ));
        }
        if self.blksize.is_some() && self.blkdev.is_none() {
            return Err(MountError::option("blksize", "needs a block device"));
        }
        let is_valid = |size: u32| size.is_power_of_two() && (512..=65536).contains(&size);
        if let Some(size) = self.blksize.filter(|&size| !is_valid(size)) {
            return Err(MountError::option(
                format!("blksize={size}"),
                "must be a power of two from 512 to the page size",
            ));
        }
        Ok(())
    }
}
