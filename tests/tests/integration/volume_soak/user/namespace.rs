//! Creation, rename and removal of names.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;

use super::{Kind, NAMES, USUAL, User};

/// Maximum number of objects in a tree that is removed.
const MAX_REMOVED_OBJECTS: usize = 12;

impl User<'_> {
    pub(super) fn make_directory(&mut self) -> io::Result<()> {
        let place = self.place();
        self.log(format_args!("mkdir {place:?}"));
        fs::create_dir(place)
    }

    pub(super) fn make_link(&mut self) -> io::Result<()> {
        let place = self.place();
        self.log(format_args!("symlink {place:?}"));
        symlink(NAMES[self.rng.below(NAMES.len())], place)
    }

    pub(super) fn link(&mut self) -> io::Result<()> {
        let (from, to) = (self.file()?, self.place());
        self.log(format_args!("link {from:?} {to:?}"));
        fs::hard_link(from, to)
    }

    pub(super) fn rename(&mut self) -> io::Result<()> {
        let (from, to) = (self.pick(|_| true)?, self.place());
        let how = match self.rng.below(6) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let is_file = |path: &Path| fs::symlink_metadata(path).is_ok_and(|there| there.is_file());
        if how.is_empty() && is_file(&to) && is_file(&from) {
            return self.take_place(&from, &to);
        }
        // Another file may appear at the target.
        let how = if how.is_empty() { RenameFlags::NOREPLACE } else { how };
        self.log(format_args!("rename {from:?} {to:?} {how:?}"));
        Ok(rustix::fs::renameat_with(CWD, &from, CWD, &to, how)?)
    }

    pub(super) fn remove_file(&mut self) -> io::Result<()> {
        let path = self.file()?;
        self.unlink(&path)
    }

    pub(super) fn remove_link(&mut self) -> io::Result<()> {
        let path = self.pick(|kind| kind == Kind::Link)?;
        self.unlink(&path)
    }

    pub(super) fn remove_directory(&mut self) -> io::Result<()> {
        let path = self.pick(|kind| kind == Kind::Directory)?;
        self.log(format_args!("rmdir {path:?}"));
        fs::remove_dir(path)
    }

    /// Like `rm -r`: continues with the rest after a failed removal.
    pub(super) fn remove_tree(&mut self) -> io::Result<()> {
        let top = self.pick(|kind| kind == Kind::Directory)?;
        let tree: Vec<(PathBuf, Kind)> =
            self.known.iter().filter(|(path, _)| path.starts_with(&top)).cloned().collect();
        if tree.len() > MAX_REMOVED_OBJECTS {
            return Ok(());
        }
        self.log(format_args!("rm -r {top:?} with {} in it", tree.len() - 1));
        // Contents follow their directory in the list.
        for (path, kind) in tree.iter().rev() {
            let done = if *kind == Kind::Directory { fs::remove_dir(path) } else { self.unlink(path) };
            if let Err(error) = done
                && Errno::from_io_error(&error).is_none_or(|errno| !USUAL.contains(&errno))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        // A file may have replaced a symlink.
        if fs::symlink_metadata(path)?.is_symlink() {
            self.log(format_args!("unlink {path:?}, a link"));
            return fs::remove_file(path);
        }
        self.do_away(path)
    }
}
