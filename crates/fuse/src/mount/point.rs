//! A FUSE mount, identified by its mount id. Finding one sends no request to its server, so that dead and hung mounts are found
//! too.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::io::Errno;

use super::ident::{self, MountIdentity, PathMount};
use super::{Dev, MountError, MountId, MountInfo, info, sys};

/// A FUSE mount: its id, its device and the path at which it was found.
///
/// It holds no file descriptor of the mount, since even an `O_PATH` one makes every unmount fail as busy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    path: PathBuf,
    identity: MountIdentity,
}

impl MountPoint {
    /// Makes a mount point of a known identity; nothing is checked here.
    pub(crate) fn new(path: PathBuf, mark: MountIdentity) -> Self {
        MountPoint { path, identity: mark }
    }

    /// Returns the topmost FUSE mount at `path`, dead or alive, without a request to its server.
    ///
    /// Mounts *above* it in the path are traversed as usual.
    ///
    /// # Errors
    ///
    /// [`MountError::NotMounted`], [`MountError::NotFuse`], or the path cannot be traversed.
    pub fn find(path: &Path) -> Result<Self, MountError> {
        Ok(Self::find_with_info(path)?.0)
    }

    /// Finds a mount as [`find`](Self::find) does, and returns it with its line of the mount table.
    ///
    /// # Errors
    ///
    /// The errors of `find`.
    pub fn find_with_info(path: &Path) -> Result<(Self, MountInfo), MountError> {
        let (path, seen) = Self::lookup(path)?;
        let line = info::read()?.into_iter().find(|line| line.id == seen.identity.old_id);
        match line {
            Some(line) if !seen.is_root || line.dev != seen.identity.dev => Err(MountError::NotMounted(path)),
            Some(line) if !line.is_fuse() => Err(MountError::NotFuse { path, kind: line.fstype }),
            Some(line) => Ok((Self::new(path, seen.identity), line)),
            None => Err(MountError::NotMounted(path)),
        }
    }

    /// Returns the path at which the mount was found: absolute, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the id of the mount.
    pub fn id(&self) -> MountId {
        self.identity.id
    }

    /// Returns the id that `/proc/self/mountinfo` shows.
    pub fn old_id(&self) -> u64 {
        self.identity.old_id
    }

    /// Returns the device number of the file system, `st_dev` of its files.
    pub fn dev(&self) -> Dev {
        self.identity.dev
    }

    pub(crate) fn mark(&self) -> MountIdentity {
        self.identity
    }

    /// Reports whether this very mount is still attached in our namespace, at any path, covered or not.
    pub fn is_mounted(&self) -> bool {
        if let MountId::Unique(id) = self.identity.id {
            match sys::old_mount_id(id) {
                Ok(_) => return true,
                Err(Errno::NOENT) => return false,
                // A sandbox without the system call: read the mount table.
                Err(_) => {}
            }
        }
        info::read().is_ok_and(|lines| {
            lines.iter().any(|l| l.id == self.identity.old_id && l.dev == self.identity.dev)
        })
    }

    /// Returns the topmost mount at a path, FUSE or not.
    pub(crate) fn top(path: &Path) -> Result<Self, MountError> {
        let (path, seen) = Self::lookup(path)?;
        Ok(Self::new(path, seen.identity))
    }

    fn lookup(path: &Path) -> Result<(PathBuf, PathMount), MountError> {
        let path = physical(path)?;
        let seen = match ident::mount_at(CWD, &path) {
            Err(Errno::IO) => ident::mount_in_table(&path).ok_or(Errno::IO),
            seen => seen,
        };
        match seen {
            Ok(seen) => Ok((path, seen)),
            Err(errno) => Err(MountError::Unreachable { path, error: errno.into() }),
        }
    }

    pub(super) fn is_same_mount(&self, seen: &PathMount) -> bool {
        self.identity.id == seen.identity.id && self.identity.dev == seen.identity.dev
    }
}

/// Resolves symbolic links, `.` and `..` in a path.
///
/// Resolving reads links, which sends no request to a mount at the end of the path. A mount whose root the kernel has marked bad
/// fails with EIO there; its name is then taken from the mount table.
pub(super) fn physical(path: &Path) -> Result<PathBuf, MountError> {
    let given_up = |error: &io::Error| {
        let here = error.raw_os_error() == Some(Errno::IO.raw_os_error());
        let (parent, name) = (path.parent().filter(|_| here)?, path.file_name()?);
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let path = std::fs::canonicalize(parent).ok()?.join(name);
        ident::mount_in_table(&path).map(|_| path)
    };
    std::fs::canonicalize(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Err(MountError::Missing(path.to_owned())),
        _ => given_up(&error).ok_or_else(|| MountError::Unreachable { path: path.to_owned(), error }),
    })
}
