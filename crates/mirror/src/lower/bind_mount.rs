//! Bind mounts: clones a directory of the source as a detached mount.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::sys::{self, Settling};
use super::{Lower, STAT, user_namespace};

const DIR: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory below another without following symbolic links.
///
/// # Errors
/// The error of `openat2(2)`: ELOOP at a symbolic link, EXDEV where the path leads out of `dir`.
pub fn below(dir: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(dir, path, DIR, Mode::empty(), resolve)
}

fn stat(dir: &OwnedFd) -> Result<Statx, Errno> {
    rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, STAT)
}

fn is_same(one: &Statx, other: &Statx) -> bool {
    let identity = |stat: &Statx| (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
    identity(one) == identity(other)
}

impl Lower {
    /// Clones the directory at `path` below the source, with all mounts below it, as a detached private mount. It gets
    /// the options of another mount (`ro`, `nosuid`, ...) and the id mapping of this engine.
    ///
    /// `source` is the current path of the source: before Linux 6.15 only attached mounts can be cloned.
    ///
    /// # Errors
    /// ENOENT and ENOTDIR if there is no such directory; EPERM without CAP_SYS_ADMIN; EINVAL if the source is mounted
    /// over, or its file system does not support id mapping.
    pub fn tree(&self, source: &Path, path: &Path, options: &str) -> Result<OwnedFd, Errno> {
        let dir = below(self.root(), path)?;
        let tree = match clone(dir.as_fd()) {
            Err(Errno::INVAL) => {
                let attached = below(rustix::fs::openat(CWD, source, DIR, Mode::empty())?, path)?;
                if !is_same(&stat(&dir)?, &stat(&attached)?) {
                    return Err(Errno::INVAL);
                }
                clone(attached.as_fd())?
            }
            cloned => cloned?,
        };
        let users = match self.ids.is_identity() {
            true => None,
            false => Some(user_namespace::mapping(&self.ids.users, &self.ids.groups)?),
        };
        let users = users.as_ref().map(AsFd::as_fd);
        sys::settle(tree.as_fd(), &Settling { users, ..Settling::by_options(options) })?;
        Ok(tree)
    }
}

fn clone(dir: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // `AT_RECURSIVE` and `AT_EMPTY_PATH` belong to the same flag word.
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    rustix::mount::open_tree(dir, c"", flags)
}
