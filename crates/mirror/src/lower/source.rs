//! The directory shown, as the engine sees it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::sys;
use crate::options::ReadTimes;

/// The root of what is shown.
#[derive(Debug)]
pub struct Source {
    /// O_PATH descriptor of the directory.
    pub root: OwnedFd,
    /// Why the view is not a private copy of the mount tree, where it is not.
    pub attached: Option<Errno>,
    /// It is the root of its file system: there is nothing else on it.
    pub whole: bool,
}

impl Source {
    /// The same once more.
    ///
    /// # Errors
    /// EMFILE.
    pub fn share(&self) -> Result<Self, Errno> {
        let root = rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?;
        Ok(Self { root, attached: self.attached, whole: self.whole })
    }

    /// Opens the directory at `path`.
    ///
    /// With CAP_SYS_ADMIN the mount tree below it is cloned, detached and private. What is mounted later is not seen
    /// in it, not even on the directory itself, so the daemon never calls itself. Mounts that are there already are
    /// shown. Without the privilege only the file system of the directory itself is shown. The clone has access times of
    /// its own, by which the kernel goes when it reads files by itself.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EACCES as from `open(2)`; EROFS cannot happen.
    pub fn open(path: &Path, read_only: bool, read_times: ReadTimes) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let plain = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        // Opening O_PATH asks for no permission on the directory itself: asked here, once, in plain words.
        rustix::fs::openat(
            &plain,
            c".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let whole = is_whole(&plain);
        match detach(&plain, &sys::Settling::source(read_only, read_times)) {
            Ok(root) => Ok(Self { root, attached: None, whole }),
            Err(errno) => Ok(Self { root: plain, attached: Some(errno), whole }),
        }
    }
}

/// Whether a directory is the root of a mount, and that the mount of a whole file system. Any doubt is a no.
fn is_whole(dir: &OwnedFd) -> bool {
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
    // A tree that cannot be walked is of no use: some old kernels refuse.
    rustix::fs::statat(&tree, c".", AtFlags::empty())?;
    Ok(tree)
}
