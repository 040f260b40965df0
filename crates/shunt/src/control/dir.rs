//! Where control sockets live: one directory per user, in which nobody else can put or open anything.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::geteuid;
use shunt_fuse::mount::{MountId, MountPoint};

const SUFFIX: &str = ".sock";

/// The file name of a mount's socket: `MAJOR:MINOR-MOUNTID.sock`.
///
/// The device number alone would do while the mount lives; the id tells it from a later mount with that number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketName(String);

impl SocketName {
    /// Of this mount.
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

    /// A name found in a directory, if it is that of a socket of ours.
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

/// An open directory of sockets, known to belong to one user and to let nobody else in.
#[derive(Debug)]
pub struct SocketDir {
    fd: OwnedFd,
    /// Its path, for messages.
    pub path: PathBuf,
    /// Its owner, whose daemons listen in it.
    pub owner: u32,
}

impl SocketDir {
    /// The one in which this user's new daemons listen, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made, or somebody else made it.
    pub fn own() -> io::Result<Self> {
        let path = own_paths().swap_remove(0);
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        Self::open(&path, geteuid().as_raw())
    }

    /// All in which daemons may listen that this user may ask: the user's own; for root, everybody's.
    pub fn all() -> Vec<Self> {
        let me = geteuid();
        let mut dirs: Vec<_> =
            own_paths().iter().filter_map(|path| Self::open(path, me.as_raw()).ok()).collect();
        if me.is_root() {
            let of_users = users("/run/user", "", "shunt").chain(users("/tmp", "shunt-", ""));
            dirs.extend(of_users.filter_map(|(path, user)| Self::open(&path, user).ok()));
        }
        dirs
    }

    /// Opens a directory, unless it is not `owner`'s own. Links are not followed: `/tmp` is everybody's.
    fn open(path: &Path, owner: u32) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_uid != owner || stat.st_mode & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is not a directory of user {owner} alone (mode 0700)", path.display()),
            ));
        }
        Ok(SocketDir { fd, path: path.to_owned(), owner })
    }

    /// A path to a name in here that fits the 107 bytes of a socket address, whatever the path of the directory.
    pub(super) fn short(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()).into()
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.fd, from, &self.fd, to)?)
    }

    pub(super) fn remove(&self, name: &str) {
        // Gone already is as good.
        let _ = rustix::fs::unlinkat(&self.fd, name, AtFlags::empty());
    }

    /// The sockets in here.
    pub(super) fn names(&self) -> Vec<SocketName> {
        let Ok(entries) = rustix::fs::Dir::read_from(&self.fd) else { return Vec::new() };
        let names = entries
            .flatten()
            .filter_map(|entry| SocketName::recognise(OsStr::from_bytes(entry.file_name().to_bytes())));
        let mut names: Vec<_> = names.collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        names
    }
}

/// Where this user's daemons listen; the first is for new ones. The others are there because a daemon may have
/// been started with another environment.
fn own_paths() -> Vec<PathBuf> {
    let me = geteuid();
    if me.is_root() {
        return vec!["/run/shunt".into()];
    }
    let me = me.as_raw();
    let tmp = PathBuf::from(format!("/tmp/shunt-{me}"));
    let usual = PathBuf::from(format!("/run/user/{me}/shunt"));
    let mut paths = match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        Some(dir) if dir.is_absolute() && dir.is_dir() => vec![dir.join("shunt"), tmp, usual],
        _ => vec![tmp, usual],
    };
    if paths.len() == 3 && paths[0] == paths[2] {
        paths.pop();
    }
    paths
}

/// `PARENT/PREFIX<uid>/REST` of every uid that is there.
fn users(parent: &str, prefix: &'static str, rest: &'static str) -> impl Iterator<Item = (PathBuf, u32)> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name: OsString = entry.file_name();
        let user: u32 = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
        let path = if rest.is_empty() { entry.path() } else { entry.path().join(rest) };
        Some((path, user))
    })
}

#[cfg(test)]
impl SocketDir {
    /// A directory of a test.
    pub(super) fn of_test(path: &Path) -> Self {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
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
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let refused = SocketDir::open(dir.path(), me).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
        assert!(SocketDir::open(dir.path(), me).is_ok());
        assert!(SocketDir::open(dir.path(), me + 1).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(SocketDir::open(&link, me).is_err());
    }
}
