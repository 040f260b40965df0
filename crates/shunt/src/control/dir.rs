//! The directories of control sockets: one per user, in which no other user can create or open anything.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::process::geteuid;
use shunt_fuse::mount::{Dev, MountId, MountPoint, fuse_mounts};

use crate::files;

/// Limit of the directory entries that are examined, since the owner of the directory may be hostile.
const MAX_SOCKETS: usize = 10_000;

const SUFFIX: &str = ".sock";

/// The file name of a mount's socket: `MAJOR:MINOR-MOUNTID.sock`.
///
/// The device number alone identifies a live mount; the id distinguishes it from a later mount with the same number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName(String);

impl SocketName {
    /// The socket name of a mount.
    pub fn of(mount: &MountPoint) -> Self {
        let (MountId::Unique(id) | MountId::Reusable(id)) = mount.id();
        SocketName(format!("{}-{id}{SUFFIX}", mount.dev()))
    }

    /// The device number of the file system, `MAJOR:MINOR`.
    pub fn device(&self) -> &str {
        self.0.split('-').next().unwrap_or_default()
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Parses a name found in a directory; none if it is not a socket name.
    pub(super) fn recognise(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let (dev, id) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        let (major, minor) = dev.split_once(':')?;
        major.parse::<u32>().ok()?;
        minor.parse::<u32>().ok()?;
        id.parse::<u64>().ok()?;
        Some(SocketName(name.to_owned()))
    }
}

impl fmt::Display for SocketName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An open directory of sockets, verified to belong to one user and to be closed to all others.
#[derive(Debug)]
pub struct SocketDir {
    fd: OwnedFd,
    /// Its path, for messages.
    pub path: PathBuf,
    /// Its owner, whose daemons listen in it.
    pub owner: u32,
}

impl SocketDir {
    /// Opens the directory for this user's new daemons, and creates it if it does not exist.
    ///
    /// # Errors
    /// It cannot be created, or another user created it.
    pub fn own() -> io::Result<Self> {
        let path = own_paths().swap_remove(0);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Self::open(&path, geteuid().as_raw())
    }

    /// Opens the directories in which a user's daemons may listen, if this process may query them: its own; for root,
    /// everybody's.
    pub fn of(owner: u32) -> Vec<Self> {
        let me = geteuid();
        let paths = match owner {
            owner if owner == me.as_raw() => own_paths(),
            owner if me.is_root() => usual_paths(owner),
            _ => return Vec::new(),
        };
        paths.iter().filter_map(|path| Self::open(path, owner).ok()).collect()
    }

    /// Opens a directory and verifies that it belongs to `owner` alone. Links are not followed: `/tmp` is writable by everybody.
    fn open(path: &Path, owner: u32) -> io::Result<Self> {
        let at = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // Component by component: a FUSE file system that another user mounted over one of them could block this process for
        // ever.
        let parent = rustix::fs::open(parent, at, Mode::empty())?;
        refuse_fuse(&parent)?;
        let place = rustix::fs::openat(&parent, name, at | OFlags::NOFOLLOW, Mode::empty())?;
        refuse_fuse(&place)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&place, ".", flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_uid != owner || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not a directory of user {owner} with mode 0700", path.display()),
            ));
        }
        Ok(SocketDir { fd, path: path.to_owned(), owner })
    }

    /// Opens a socket in the directory, to connect to.
    ///
    /// # Errors
    /// It does not exist, or it is a link or another object that is not a socket.
    pub(super) fn socket(&self, name: &SocketName) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(&self.fd, name.as_str(), flags, Mode::empty())?;
        let mode = rustix::fs::fstat(&socket)?.st_mode;
        if FileType::from_raw_mode(mode) != FileType::Socket {
            let line = format!("{}/{name} is not a socket", self.path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, line));
        }
        Ok(socket)
    }

    /// A path to a name in the directory that fits the 107 bytes of a socket address, independent of the length of the path of the directory.
    pub(super) fn short(&self, name: &str) -> PathBuf {
        Path::new(&files::path_of(&self.fd)).join(name)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    pub(super) fn remove(&self, name: &str) {
        // It may have been removed already.
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// The sockets in the directory, up to [`MAX_SOCKETS`].
    pub(super) fn names(&self) -> Vec<SocketName> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        let names = entries
            .flatten()
            .take(MAX_SOCKETS)
            .filter_map(|entry| SocketName::recognise(OsStr::from_bytes(entry.file_name().to_bytes())));
        let mut names: Vec<_> = names.collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names
    }
}

/// The directories in which this user's daemons listen; the first is for new ones. A daemon started with another environment may
/// listen in one of the others.
fn own_paths() -> Vec<PathBuf> {
    let me = geteuid();
    let mut paths = usual_paths(me.as_raw());
    if me.is_root() {
        return paths;
    }
    if let Some(dir) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)
        && dir.is_absolute()
        && dir.is_dir()
    {
        let first = dir.join("shunt");
        paths.retain(|path| *path != first);
        paths.insert(0, first);
    }
    paths
}

/// The default directories of a user's daemons.
fn usual_paths(user: u32) -> Vec<PathBuf> {
    match user {
        0 => vec!["/run/shunt".into()],
        user => vec![format!("/tmp/shunt-{user}").into(), format!("/run/user/{user}/shunt").into()],
    }
}

/// Fails for a directory on a FUSE file system, without a request to its daemon.
fn refuse_fuse(dir: impl AsFd) -> io::Result<()> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(dir, "", flags, StatxFlags::empty())?;
    let mounts = fuse_mounts().map_err(io::Error::other)?;
    let on_fuse = |dev: Dev| dev.major == stat.stx_dev_major && dev.minor == stat.stx_dev_minor;
    if mounts.iter().any(|mount| on_fuse(mount.dev)) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the directory of control sockets is on a FUSE file system",
        ));
    }
    Ok(())
}

#[cfg(test)]
impl SocketDir {
    /// Opens a temporary directory as a socket directory.
    pub(super) fn of_test(path: &Path) -> Self {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::File::open(path).unwrap().set_permissions(mode).unwrap();
        Self::open(path, geteuid().as_raw()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_our_names_are_recognised() {
        assert!(SocketName::recognise(OsStr::new("0:98-4294968301.sock")).is_some());
        for other in ["", ".sock", "0:98.sock", "0-1.sock", "a:b-c.sock", ".new-1", "0:1-2.sock.bak"] {
            assert_eq!(SocketName::recognise(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_directory_that_others_may_enter_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let opened = std::fs::File::open(dir.path()).unwrap();
        opened.set_permissions(PermissionsExt::from_mode(0o755)).unwrap();
        let refused = SocketDir::open(dir.path(), me).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        opened.set_permissions(PermissionsExt::from_mode(0o700)).unwrap();
        assert!(SocketDir::open(dir.path(), me).is_ok());
        assert!(SocketDir::open(dir.path(), me + 1).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(SocketDir::open(&link, me).is_err());
    }
}
