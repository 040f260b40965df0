//! What to mount and how, independent of the call that does it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{MountError, MountMethod};

/// The kind of the file system's root inode. The mount point must be of the same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RootKind {
    /// A directory.
    #[default]
    Directory,
    /// A regular file.
    File,
}

impl RootKind {
    /// The file type bits.
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
    /// If the old one is not newer than the modification, or a day old. The kernel's default.
    #[default]
    Relative,
    /// Never.
    Never,
    /// At every access.
    Strict,
}

/// The options of a mount.
///
/// The defaults are those of the kernel: read-write, `relatime`, visible only to the user who mounts, and
/// `nosuid,nodev` as every mount by a user should be unless root says otherwise.
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
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the mount table shows as the source, `shunt` by default. Ignored with a block device.
    #[must_use]
    pub fn fsname(mut self, name: impl AsRef<OsStr>) -> Self {
        self.fsname = name.as_ref().to_owned();
        self
    }

    /// The part after `fuse.` in the type that the mount table shows, for example `shunt.mirror`.
    #[must_use]
    pub fn subtype(mut self, name: impl Into<String>) -> Self {
        self.subtype = Some(name.into());
        self
    }

    switches! {
        /// Lets users other than the one who mounts in.
        allow_other,
        /// The kernel checks mode bits, so that the server need not.
        default_permissions,
        /// No writes.
        read_only,
        /// Set-user-id and set-group-id bits have no effect. On by default.
        nosuid,
        /// Device nodes cannot be opened. On by default.
        nodev,
        /// Files cannot be executed.
        noexec,
        /// Symbolic links are not followed, but can be read (Linux 5.10). `fusermount3` does not take it.
        nosymfollow,
        /// No access times for directories.
        nodiratime,
        /// Times are kept in memory until the inode is written for another reason.
        lazytime,
        /// Every write is synchronous.
        sync,
        /// Every change of a directory is synchronous.
        dirsync,
    }

    /// When access times change.
    #[must_use]
    pub fn atime(mut self, atime: Atime) -> Self {
        self.atime = Some(atime);
        self
    }

    /// The largest READ in bytes. The kernel takes at least 4096; without it the limit of INIT holds.
    #[must_use]
    pub fn max_read(mut self, bytes: u32) -> Self {
        self.max_read = Some(bytes);
        self
    }

    /// The kind of the root inode, a directory by default.
    #[must_use]
    pub fn root(mut self, kind: RootKind) -> Self {
        self.root = kind;
        self
    }

    /// The permission bits of the root, none by default. The kernel asks for the root's attributes before it goes by
    /// them; but it drops an answer that a notification about the root overtook, and goes by these then. `fusermount3`
    /// does not take them.
    #[must_use]
    pub fn root_permissions(mut self, bits: u16) -> Self {
        self.root_permissions = bits & 0o7777;
        self
    }

    /// The kernel's `rootmode`.
    pub(super) fn root_mode(&self) -> u32 {
        self.root.mode() | u32::from(self.root_permissions)
    }

    /// Mounts as `fuseblk` over this block device, which needs root. The kernel then opens the device for
    /// itself, sends DESTROY at unmount and waits for the answer.
    #[must_use]
    pub fn blkdev(mut self, device: impl AsRef<Path>) -> Self {
        self.blkdev = Some(device.as_ref().to_owned());
        self
    }

    /// The block size of a `fuseblk` mount in bytes: a power of two from 512 to the page size, 512 by default.
    /// The mount table of newer kernels shows the page size instead.
    #[must_use]
    pub fn blksize(mut self, bytes: u32) -> Self {
        self.blksize = Some(bytes);
        self
    }

    /// Uses this method and no other.
    #[must_use]
    pub fn method(mut self, method: MountMethod) -> Self {
        self.method = Some(method);
        self
    }

    /// Whether the mount will be read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether reads are to change access times.
    pub fn keeps_read_times(&self) -> bool {
        self.atime_or_default() != Atime::Never && !self.read_only
    }

    /// When access times are to change, where that was said.
    pub fn atime_said(&self) -> Option<Atime> {
        self.atime
    }

    /// Whether access times of directories stay.
    pub fn is_nodiratime(&self) -> bool {
        self.nodiratime
    }

    /// When access times change.
    pub(super) fn atime_or_default(&self) -> Atime {
        self.atime.unwrap_or_default()
    }

    /// Whether set-user-id and set-group-id bits will have an effect.
    pub fn is_suid(&self) -> bool {
        !self.nosuid
    }

    /// Whether other users will be let in.
    pub fn is_allow_other(&self) -> bool {
        self.allow_other
    }

    /// What the mount table will show as the source.
    pub(super) fn source(&self) -> &OsStr {
        self.blkdev.as_ref().map_or(&self.fsname, |d| d.as_os_str())
    }

    /// The kernel's name of the file system type, without the subtype.
    pub(super) fn fstype(&self) -> &'static str {
        if self.blkdev.is_some() { "fuseblk" } else { "fuse" }
    }

    /// The settings of FUSE itself as the kernel and `fusermount3` spell them.
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

    /// Refuses what no method could carry out, before anything is opened.
    pub(super) fn check(&self) -> Result<(), MountError> {
        if self.source().as_bytes().contains(&0) || self.source().is_empty() {
            return Err(MountError::option("fsname", "must not be empty nor hold a NUL"));
        }
        if let Some(subtype) = &self.subtype
            && (subtype.is_empty() || subtype.contains([',', '\0', '\\', ' ', '\n']))
        {
            return Err(MountError::option("subtype", "must be a plain word"));
        }
        if self.blksize.is_some() && self.blkdev.is_none() {
            return Err(MountError::option("blksize", "only a block device has one"));
        }
        if let Some(size) = self.blksize
            && !(size.is_power_of_two() && (512..=65536).contains(&size))
        {
            return Err(MountError::option(
                format!("blksize={size}"),
                "must be a power of two from 512 to the page size",
            ));
        }
        Ok(())
    }
}
