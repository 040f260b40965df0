//! The two directories that are compared.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shunt_fuse::mount::{MountInfo, fuse_mounts};

use crate::error::{Result, failed, usage};
use crate::own_mounts;

/// One directory.
#[derive(Clone, Debug)]
pub struct Side {
    pub dir: PathBuf,
    /// The directory in the source that a mirror shows as this one.
    pub below: Option<PathBuf>,
    /// The type of its file system.
    pub fstype: String,
}

/// The directory in the mount and the one that it is compared with.
#[derive(Clone, Debug)]
pub struct Sides {
    pub mount: Side,
    pub against: Side,
}

/// A side as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct SideFacts {
    pub path: String,
    pub fstype: String,
}

impl Side {
    fn of(dir: &Path) -> Result<Self> {
        let dir = dir.canonicalize().map_err(|error| {
            failed(format_args!("cannot open {}: {error}; name a directory", dir.display()))
        })?;
        let metadata = dir.metadata().map_err(|error| {
            failed(format_args!("cannot read the attributes of {}: {error}", dir.display()))
        })?;
        if !metadata.is_dir() {
            return Err(usage(format_args!("{} is not a directory", dir.display())));
        }
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let is_here = |info: &MountInfo| {
            info.dev.major == major && info.dev.minor == minor && dir.starts_with(&info.mountpoint)
        };
        let mount =
            fuse_mounts()?.into_iter().filter(is_here).max_by_key(|info| info.mountpoint.as_os_str().len());
        let fstype = mount.as_ref().map_or_else(|| native_type(&dir), |info| info.fstype.clone());
        let below = mount.as_ref().and_then(|info| below(&dir, info));
        Ok(Side { dir, below, fstype })
    }

    pub fn facts(&self) -> SideFacts {
        SideFacts { path: self.dir.to_string_lossy().into_owned(), fstype: self.fstype.clone() }
    }
}

impl Sides {
    /// Finds both: the second is `against`, else the directory below the first in the source of its mirror.
    ///
    /// # Errors
    /// A directory cannot be opened, they are the same, or the second must be named.
    pub fn find(dir: &Path, against: Option<&Path>) -> Result<Self> {
        let mount = Side::of(dir)?;
        let Some(against) = against.or(mount.below.as_deref()) else {
            return Err(usage(format_args!(
                "{} is not in a mirror, so the directory below it is not known: name one to compare with by --against DIR",
                dir.display()
            )));
        };
        let against = Side::of(against)?;
        if mount.dir == against.dir {
            return Err(usage(format_args!(
                "{} would be compared with itself: name another --against",
                dir.display()
            )));
        }
        Ok(Sides { mount, against })
    }
}

/// The directory in the source of a mirror that a directory in its mount shows.
fn below(dir: &Path, info: &MountInfo) -> Option<PathBuf> {
    let is_mirror = own_mounts::kind(info) == Some("mirror");
    let relative = dir.strip_prefix(&info.mountpoint).ok().filter(|_| is_mirror)?;
    let below = Path::new(&info.source).join(relative);
    below.is_dir().then_some(below)
}

/// The type of a file system that is not FUSE, by its magic number.
fn native_type(dir: &Path) -> String {
    let known = [
        (0xef53, "ext4"),
        (0x5846_5342, "xfs"),
        (0x9123_683e, "btrfs"),
        (0x0102_1994, "tmpfs"),
        (0x794c_7630, "overlay"),
        (0x6969, "nfs"),
        (0x2fc1_2fc1, "zfs"),
        (0x6573_5546, "fuse"),
        (0xf2f5_2010, "f2fs"),
    ];
    let magic = rustix::fs::statfs(dir).map_or(0, |stat| stat.f_type);
    let found = known.iter().find(|(number, _)| *number == magic);
    found.map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned())
}
