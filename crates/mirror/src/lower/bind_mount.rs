//! Bind mounts: clones a directory of the source as a detached mount.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;

use super::sys::{self, Settling};
use super::{IdMap, Lower, STAT};

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
            false => Some(user_namespace(&self.ids.users, &self.ids.groups)?),
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

/// Creates a user namespace that maps each id of the source to the one shown. It exists as long as its descriptor.
fn user_namespace(users: &IdMap, groups: &IdMap) -> Result<OwnedFd, Errno> {
    let failed = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let child = sys::new_user_namespace()?;
    let proc = format!("/proc/{}", child.pid());
    for (file, map) in [("uid_map", users), ("gid_map", groups)] {
        // A single write: the kernel accepts only one.
        let mut file = fs::OpenOptions::new().write(true).open(format!("{proc}/{file}")).map_err(failed)?;
        file.write_all(lines(map).as_bytes()).map_err(failed)?;
    }
    fs::File::open(format!("{proc}/ns/user")).map(Into::into).map_err(failed)
}

/// Formats a map for `/proc/PID/uid_map`. Unmapped ids map to themselves, unless another id is shown as their number.
fn lines(map: &IdMap) -> String {
    // The largest number is not a valid id.
    const END: u64 = u32::MAX as u64;
    let mut lines = String::new();
    let mut taken: Vec<(u64, u64)> = Vec::new();
    for (lower, shown, count) in map.runs() {
        let _ = writeln!(lines, "{lower} {shown} {count}");
        taken.extend([lower, shown].map(|start| (start.into(), u64::from(start) + u64::from(count))));
    }
    taken.push((END, END));
    taken.sort_unstable();
    let mut free = 0;
    for (start, end) in taken {
        if start > free {
            let _ = writeln!(lines, "{free} {free} {}", start - free);
        }
        free = free.max(end);
    }
    lines
}

/// A process that only holds its user namespace; it exits when this is dropped.
pub(super) struct Held {
    pub(super) pid: rustix::process::Pid,
    /// The process exits when this pipe is closed.
    pub(super) line: Option<OwnedFd>,
}

impl Held {
    fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits until the process is in its namespace.
    pub(super) fn ready(self, said: OwnedFd) -> Result<Self, Errno> {
        let mut answer = [0];
        match fs::File::from(said).read(&mut answer) {
            Ok(1) => Ok(self),
            _ => Err(Errno::PERM),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.line.take());
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mapped_stays() {
        assert_eq!(lines(&IdMap::default()), "0 0 4294967295\n");
        let map: IdMap = "1000:2000:10".parse().unwrap();
        assert_eq!(lines(&map), "1000 2000 10\n0 0 1000\n1010 1010 990\n2010 2010 4294965285\n");
        let swapped: IdMap = "0:1,1:0".parse().unwrap();
        assert_eq!(lines(&swapped), "0 1 1\n1 0 1\n2 2 4294967293\n");
    }
}
