//! `shunt volume restore`: what was is copied out of the past.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, lchown,
    symlink,
};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use shunt_volume::past::When;

use super::history::versions;
use super::place::Place;
use crate::args::RestoreArgs;
use crate::cmd::print;
use crate::error::{Result, failed};

pub fn run(args: &RestoreArgs) -> Result<()> {
    let (from, path) = source(&args.path)?;
    let to = args.to.as_ref().unwrap_or(&path);
    copy(&from, to).map_err(|error| failed(format_args!("cannot restore {}: {error}", to.display())))?;
    print(format!("restored {} from {}\n", to.display(), from.display()))
}

/// Where it is read, and which path that was.
fn source(path: &Path) -> Result<(PathBuf, PathBuf)> {
    let name = path.file_name().unwrap_or_default();
    if let Some((name, _)) = When::split(name.as_bytes()) {
        let there = if name.is_empty() { PathBuf::from(".") } else { PathBuf::from(OsStr::from_bytes(name)) };
        return Ok((path.to_owned(), path.with_file_name(there)));
    }
    // The last that was before it became what it is, or was removed.
    let found = versions(&Place::of(path)?)?;
    let before = found.iter().find(|version| !version.current && version.what != "removed");
    let Some(before) = before else {
        return Err(failed(format_args!("{}: no other version of it is kept", path.display())));
    };
    // What was in one that was removed went first, commit by commit: which of these is meant only its user knows.
    if before.what == "directory" {
        let path = path.display();
        return Err(failed(format_args!("{path} was a directory: say as of when, {path}@TIME")));
    }
    let mut then = name.to_owned();
    then.push(format!("@#{}", before.seq));
    Ok((path.with_file_name(then), path.to_owned()))
}

/// Set-user-ID and set-group-ID.
const AS_OWNER: u32 = 0o6000;

/// Files take the place of what is there at once, or not at all; directories are filled, and what else is in them stays.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let then = fs::symlink_metadata(from)?;
    let kind = then.file_type();
    if kind.is_dir() {
        // Who may look into it is set once all is in it.
        match DirBuilder::new().mode(0o700).create(to) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists && fs::symlink_metadata(to)?.is_dir() => {}
            made => made?,
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return dress(from, to, &then);
    }
    let new = to.with_file_name(new_name());
    let made = (|| {
        if kind.is_symlink() {
            symlink(fs::read_link(from)?, &new)?;
        } else if kind.is_file() {
            let mut new = File::options().write(true).create_new(true).mode(0o600).open(&new)?;
            io::copy(&mut File::open(from)?, &mut new)?;
        } else {
            let kind = if kind.is_fifo() {
                FileType::Fifo
            } else if kind.is_socket() {
                FileType::Socket
            } else if kind.is_char_device() {
                FileType::CharacterDevice
            } else {
                FileType::BlockDevice
            };
            rustix::fs::mknodat(CWD, &new, kind, Mode::from_raw_mode(0o600), then.rdev())?;
        }
        dress(from, &new, &then)?;
        fs::rename(&new, to)
    })();
    if made.is_err() {
        fs::remove_file(&new).ok();
    }
    made
}

fn new_name() -> OsString {
    OsString::from_vec(format!(".restored-{:016x}", rand::random::<u64>()).into_bytes())
}

/// Gives it the attributes that it had. Another user's are given by root only.
fn dress(from: &Path, to: &Path, then: &Metadata) -> io::Result<()> {
    let is_owned = match lchown(to, Some(then.uid()), Some(then.gid())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => false,
        given => given.map(|()| true)?,
    };
    if !then.is_symlink() {
        xattrs(from, to)?;
        fs::set_permissions(to, Permissions::from_mode(mode(then.mode(), is_owned)))?;
    }
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = Timestamps {
        last_access: time(then.atime(), then.atime_nsec()),
        last_modification: time(then.mtime(), then.mtime_nsec()),
    };
    rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}

/// What it ran as was its owner then: as another it is an ordinary program.
fn mode(then: u32, is_owned: bool) -> u32 {
    then & if is_owned { 0o7777 } else { 0o7777 & !AS_OWNER }
}

fn xattrs(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::listxattr(from, &mut names[..])?;
    let mut value = vec![0; 1 << 16];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::getxattr(from, name, &mut value[..])?;
        match rustix::fs::setxattr(to, name, &value[..length], XattrFlags::empty()) {
            // Those of the system are root's to set.
            Err(rustix::io::Errno::PERM) if !name.starts_with(b"user.") => {}
            set => set?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_as_its_owner_does_not_run_as_another() {
        assert_eq!(mode(0o106_755, true), 0o6755);
        assert_eq!(mode(0o106_755, false), 0o755);
        assert_eq!(mode(0o41_777, false), 0o1777);
    }
}
