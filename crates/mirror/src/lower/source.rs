//! The source directory, opened as a private clone of its mount tree if possible.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::read_times::ReadTimes;
use super::sys;

/// The opened root of the source.
#[derive(Debug)]
pub(crate) struct Source {
    /// O_PATH descriptor of the directory.
    pub root: OwnedFd,
    /// The reason why the view is not a private copy of the mount tree; `None` if it is.
    pub attached: Option<Errno>,
    /// The directory is the root of its file system, and shows all of it.
    pub is_fs_root: bool,
}

impl Source {
    /// Duplicates the root descriptor.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn share(&self) -> Result<Self, Errno> {
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        Ok(Self { root, attached: self.attached, is_fs_root: self.is_fs_root })
    }

    /// Opens the directory at `path`.
    ///
    /// With CAP_SYS_ADMIN the mount tree below it is cloned, detached and private. Later mounts do not appear in the
    /// clone, not even on the directory itself, so the daemon never calls itself. Existing mounts are shown. Without
    /// the privilege only the file system of the directory itself is shown. The clone has access-time options of its
    /// own, which the kernel applies to passthrough reads.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES as from `open(2)`; EROFS cannot happen.
    pub(crate) fn open(path: &Path, read_only: bool, read_times: ReadTimes) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let plain = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        // O_PATH does not check permission on the directory itself, so this open checks it once.
        rustix::fs::openat(
            &plain,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let is_fs_root = is_fs_root(&plain);
        match detach(&plain, &sys::Settling::source(read_only, read_times)) {
            Ok(root) => Ok(Self { root, attached: None, is_fs_root }),
            Err(errno) => Ok(Self { root: plain, attached: Some(errno), is_fs_root }),
        }
    }
}

/// Reports whether a directory is the root of a mount that shows a whole file system; `false` in doubt.
fn is_fs_root(dir: &OwnedFd) -> bool {
    let Ok(stat) = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) else { return false };
    // One line per mount: number, parent, device, root within the file system, ...
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let root = table.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        (fields.next()? == stat.stx_mnt_id.to_string().as_bytes()).then_some(fields.nth(2)?)
    });
    stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) && root == Some(b"/")
}

fn detach(plain: &OwnedFd, settling: &sys::Settling<'_>) -> Result<OwnedFd, Errno> {
    // `AT_RECURSIVE` and `AT_EMPTY_PATH` belong to the same flag word.
    let clone = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(plain, c"", clone)?;
    sys::settle(tree.as_fd(), settling)?;
    // Some old kernels refuse to walk a detached tree.
    rustix::fs::statat(&tree, c".", AtFlags::empty())?;
    Ok(tree)
}
