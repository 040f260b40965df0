//! `shunt volume restore`: copies an earlier version of a file or directory into its place.
//!
//! Root restores into directories of users, who can exchange names while files are copied: see [`crate::files`].

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use shunt_volume::history::{HISTORY, PointInTime};

use super::versions::versions;
use crate::args::RestoreArgs;
use crate::cmd::print;
use crate::cmd::volume::mounted_path::MountedPath;
use crate::error::{Result, failed};
use crate::files::{self, Attributes, NewFile, Stage};

/// Limit of the nesting of directories. Each takes two descriptors while it is filled, and a process may have 1,024.
const MAX_DEPTH: usize = 400;

pub fn run(args: &RestoreArgs) -> Result<()> {
    let (from, path) = source(&args.path)?;
    let to = args.to.as_ref().unwrap_or(&path);
    let restore = || {
        let (from, from_name) = files::open_parent(&from)?;
        let (to, to_name) = files::open_parent(to)?;
        copy(from.as_fd(), &from_name, to.as_fd(), &to_name, 0)
    };
    restore().map_err(|error| failed(format_args!("cannot restore {}: {error}", to.display())))?;
    print(format!("restored {} from {}\n", to.display(), from.display()))
}

/// The path to read the version from, and the path that it had.
fn source(path: &Path) -> Result<(PathBuf, PathBuf)> {
    if let Some(to) = out_of_history(path) {
        return Ok((path.to_owned(), to));
    }
    let name = path.file_name().unwrap_or_default();
    if let Some((name, _)) = PointInTime::split(name.as_bytes()) {
        let there = if name.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsStr::from_bytes(name)) };
        return Ok((in_history(path), path.with_file_name(there)));
    }
    // The latest version before the current one, or before the removal.
    let found = versions(&MountedPath::of(path)?)?;
    let before = found.iter().find(|version| !version.current && version.what != "removed");
    let Some(before) = before else {
        return Err(failed(format_args!(
            "cannot restore {}: no other version of it is kept",
            path.display()
        )));
    };
    // A removed directory was emptied first, commit by commit: only the user knows which of these states is meant.
    if before.what == "directory" {
        let path = path.display();
        return Err(failed(format_args!(
            "cannot restore {path}: it was a directory; name a time: {path}@TIME"
        )));
    }
    let mut then = name.to_owned();
    then.push(format!("@#{}", before.seq));
    Ok((in_history(&path.with_file_name(then)), path.to_owned()))
}

/// The current path of a historical one: of `dir/.shunt-history/WHEN/a`, and of `dir/.shunt-history/NAME@WHEN/a`.
fn out_of_history(path: &Path) -> Option<PathBuf> {
    let parts: Vec<&OsStr> = path.components().map(|part| part.as_os_str()).collect();
    let at = parts.iter().rposition(|part| *part == OsStr::new(HISTORY))?;
    let then = parts.get(at + 1)?.as_bytes();
    let name = match PointInTime::parse(then) {
        Some(_) => None,
        None => Some(OsStr::from_bytes(PointInTime::split(then)?.0)),
    };
    let now: PathBuf =
        parts[..at].iter().copied().chain(name).chain(parts[at + 2..].iter().copied()).collect();
    Some(if now.as_os_str().is_empty() { PathBuf::from(".") } else { now })
}

/// Replaces components `NAME@WHEN` by their paths below the history directory, which every mount shows. A component that exists
/// by that very name is kept.
fn in_history(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        let (name, here) = (part.as_os_str(), found.join(part));
        let past = found.join(HISTORY);
        // A daemon of an older version has no history directory, and shows the version next to the name.
        let shown_there = PointInTime::split(name.as_bytes()).is_some() && !here.exists() && past.exists();
        found = if shown_there { past.join(name) } else { here };
    }
    found
}

/// Copies one object. A file replaces atomically whatever has its name; a directory is filled, and other entries in it stay.
fn copy(
    from: BorrowedFd<'_>,
    from_name: &CStr,
    to: BorrowedFd<'_>,
    to_name: &CStr,
    depth: usize,
) -> io::Result<()> {
    let from = files::open_path(from, from_name)?;
    let then = rustix::fs::fstat(&from)?;
    match FileType::from_raw_mode(then.st_mode) {
        FileType::Directory => directory(&from, &then, to, to_name, depth),
        FileType::RegularFile => {
            let new = NewFile::create(to)?;
            io::copy(&mut files::reopen(&from)?, &mut new.file())?;
            Attributes::of(&then).set(new.file(), files::xattrs(&from)?)?;
            new.replace(to_name)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&from, "", Vec::new())?;
            let stage = Stage::new(to)?;
            let made = files::make_symlink(stage.directory(), Stage::NEW, &target)?;
            Attributes::of(&then).set(made, [])?;
            Ok(stage.replace(to_name)?)
        }
        kind => {
            let stage = Stage::new(to)?;
            let made = files::make_node(stage.directory(), Stage::NEW, kind, then.st_rdev)?;
            Attributes::of(&then).set(made, files::xattrs(&from)?)?;
            Ok(stage.replace(to_name)?)
        }
    }
}

fn directory(from: &OwnedFd, then: &Stat, to: BorrowedFd<'_>, name: &CStr, depth: usize) -> io::Result<()> {
    if depth >= MAX_DEPTH {
        return Err(io::Error::other(format!(
            "nested deeper than {MAX_DEPTH} directories; restore an inner directory by itself"
        )));
    }
    // Other users may enter a new directory once it is complete: the mode is set last.
    let into = match files::make_directory(to, name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match files::open_directory(to, name) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(error),
            opened => existing(opened?, then, name)?,
        },
        made => made?,
    };
    for name in files::names_in(from)? {
        copy(from.as_fd(), &name, into.as_fd(), &name, depth + 1)?;
    }
    Attributes::of(then).set(&into, files::xattrs(from)?)
}

/// Accepts an existing directory if its owner is the one of the restored version. A user who can rename it can have put any
/// directory into its place, and root would give them that one.
fn existing(there: OwnedFd, then: &Stat, name: &CStr) -> io::Result<OwnedFd> {
    let owner = rustix::fs::fstat(&there)?.st_uid;
    if owner == then.st_uid || !rustix::process::geteuid().is_root() {
        return Ok(there);
    }
    let why = format!(
        "the directory {} belongs to user {owner}, but its earlier version to user {}; restore it elsewhere with --to",
        name.to_string_lossy(),
        then.st_uid
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_past_is_one_of_now() {
        for (then, now) in [
            ("/m/dir/.shunt-history/2026-11-19/a/b", Some("/m/dir/a/b")),
            ("/m/dir/.shunt-history/a@2026-11-19/b", Some("/m/dir/a/b")),
            ("/m/dir/.shunt-history/a@#7", Some("/m/dir/a")),
            (".shunt-history/#7", Some(".")),
            ("dir/.shunt-history/#7", Some("dir")),
            ("dir/.shunt-history", None),
            ("dir/.shunt-history/a", None),
            ("dir/a@#7", None),
        ] {
            assert_eq!(out_of_history(Path::new(then)).as_deref(), now.map(Path::new), "{then}");
        }
    }
}
