//! Resolves a path through directories that other users may write to.

use std::collections::VecDeque;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::open_path;

/// Limit of symbolic links in one path, as in the kernel.
const MAX_SYMLINKS: u32 = 40;

/// Opens the directory that a path lies in, with `O_PATH`, and returns the name of the path in it.
///
/// The last name is not followed. A symbolic link before it is followed only if it belongs to root or to the caller and lies in
/// a directory of one of them: every other link may have been put there to lead this process elsewhere.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`] for a symbolic link of another user.
pub fn open_parent(path: &Path) -> io::Result<(OwnedFd, CString)> {
    let (parent, name) = match path.file_name() {
        Some(name) => (path.parent().unwrap_or(path), name),
        // The path ends in `..`, or is `.` or `/`.
        None => (path, OsStr::new(".")),
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = match rustix::fs::openat2(CWD, parent, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // The path contains a link, or the kernel is older than 5.6.
        Err(Errno::LOOP | Errno::NOSYS) => walk(parent)?,
        opened => opened?,
    };
    Ok((opened, CString::new(name.as_bytes())?))
}

/// Opens a directory component by component, following trusted links only.
fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut directory = open_path(CWD, c".")?;
    let mut left = VecDeque::new();
    push(&mut left, path);
    let mut links = 0;
    while let Some(name) = left.pop_front() {
        let name = CString::new(name.as_os_str().as_bytes())?;
        let found = open_path(&directory, &name)?;
        let stat = rustix::fs::fstat(&found)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => directory = found,
            FileType::Symlink => {
                links += 1;
                if links > MAX_SYMLINKS {
                    return Err(Errno::LOOP.into());
                }
                if !(is_trusted(&rustix::fs::fstat(&directory)?) && is_trusted(&stat)) {
                    let why = format!(
                        "{} in {} is a symbolic link of another user: give the path of the directory that it leads to",
                        name.to_string_lossy(),
                        path.display()
                    );
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
                push(&mut left, &PathBuf::from(std::ffi::OsString::from_vec(target)));
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    Ok(directory)
}

/// Puts the components of a path in front of those that are still to be resolved.
fn push(left: &mut VecDeque<PathBuf>, path: &Path) {
    for component in path.components().rev() {
        if component != Component::CurDir {
            left.push_front(PathBuf::from(component.as_os_str()));
        }
    }
}

fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn same(opened: &OwnedFd, path: &Path) -> bool {
        let (one, two) = (rustix::fs::fstat(opened).unwrap(), rustix::fs::stat(path).unwrap());
        (one.st_dev, one.st_ino) == (two.st_dev, two.st_ino)
    }

    #[test]
    fn links_of_the_caller_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real/inner");
        std::fs::create_dir_all(&real).unwrap();
        symlink("real", dir.path().join("relative")).unwrap();
        symlink(dir.path().join("relative/inner"), dir.path().join("absolute")).unwrap();
        symlink("round", dir.path().join("round")).unwrap();
        for path in ["real/inner/x", "relative/inner/x", "absolute/x", "absolute/../inner/x", "absolute/./x"]
        {
            let (opened, name) = open_parent(&dir.path().join(path)).unwrap();
            assert!(same(&opened, &real), "{path}");
            assert_eq!(name.as_c_str(), c"x");
        }
        let (opened, name) = open_parent(Path::new("x")).unwrap();
        assert!(same(&opened, Path::new(".")) && name.as_c_str() == c"x");
        let (opened, name) = open_parent(&dir.path().join("absolute/..")).unwrap();
        assert!(same(&opened, &dir.path().join("real")) && name.as_c_str() == c".");
        let error = |path: &str| open_parent(&dir.path().join(path)).unwrap_err().raw_os_error();
        assert_eq!(error("round/x"), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(error("none/x"), Some(Errno::NOENT.raw_os_error()));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "no other process writes to this directory")]
    fn links_of_others_are_refused() {
        if !geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        std::fs::create_dir(&theirs).unwrap();
        symlink("/etc", theirs.join("in-their-directory")).unwrap();
        lchown(&theirs, Some(65534), Some(65534)).unwrap();
        symlink("/etc", dir.path().join("their-link")).unwrap();
        lchown(dir.path().join("their-link"), Some(65534), Some(65534)).unwrap();
        for path in ["theirs/in-their-directory/x", "their-link/x"] {
            let error = open_parent(&dir.path().join(path)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}");
            assert!(error.to_string().contains("is a symbolic link of another user"), "{error}");
        }
    }
}
