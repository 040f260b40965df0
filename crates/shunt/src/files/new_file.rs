//! A regular file that gets its name when it is complete.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

use rustix::fs::{AtFlags, CWD, OFlags};
use rustix::io::Errno;

use super::{PRIVATE, make_file, open_path, path_of, temporary_name};

/// A new file without a name (`O_TMPFILE`), or with a temporary one on file systems that do not support that. Dropping it before
/// [`NewFile::replace`] removes it.
#[derive(Debug)]
pub struct NewFile<'a> {
    parent: BorrowedFd<'a>,
    file: File,
    temporary: Option<CString>,
}

impl<'a> NewFile<'a> {
    /// Creates it with mode 0600, in the directory that it will be published in.
    pub fn create(parent: BorrowedFd<'a>) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, c".", flags, PRIVATE) {
            Ok(file) => Ok(Self { parent, file: file.into(), temporary: None }),
            // The file system or an old kernel does not support O_TMPFILE.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::ISDIR | Errno::INVAL) => Self::create_named(parent),
            Err(errno) => Err(errno.into()),
        }
    }

    fn create_named(parent: BorrowedFd<'a>) -> io::Result<Self> {
        let name = temporary_name();
        let file = make_file(parent, &name)?.into();
        Ok(Self { parent, file, temporary: Some(name) })
    }

    /// The open file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Writes it to the disk, and gives it its name atomically: any object of that name is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::PermissionDenied`] if another process has renamed or replaced the temporary name.
    pub fn replace(mut self, name: &CStr) -> io::Result<()> {
        self.file.sync_all()?;
        // linkat cannot replace an existing name; a rename can.
        let temporary = match self.temporary.take() {
            Some(temporary) => temporary,
            None => {
                let temporary = temporary_name();
                let from = path_of(&self.file);
                rustix::fs::linkat(CWD, from, self.parent, &temporary, AtFlags::SYMLINK_FOLLOW)?;
                temporary
            }
        };
        let temporary = &*self.temporary.insert(temporary);
        let (ours, there) = (rustix::fs::fstat(&self.file)?, open_path(self.parent, temporary));
        let there = there.and_then(|there| rustix::fs::fstat(&there));
        if there.is_ok_and(|there| (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)) {
            rustix::fs::renameat(self.parent, temporary, self.parent, name)?;
            self.temporary = None;
            return Ok(());
        }
        // The name refers to another file by now, which must not be removed.
        self.temporary = None;
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process replaced the file while it was written",
        ))
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(self.parent.as_fd(), temporary, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_file_appears_complete_and_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", dir.path().join("name")).unwrap();
        let parent = File::open(dir.path()).unwrap();
        for create in [NewFile::create, NewFile::create_named] {
            let new = create(parent.as_fd()).unwrap();
            new.file().write_all(b"text").unwrap();
            new.replace(c"name").unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join("name")).unwrap(), "text");
            drop(create(parent.as_fd()).unwrap());
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn a_file_whose_temporary_name_was_taken_is_not_renamed() {
        let dir = tempfile::tempdir().unwrap();
        let parent = File::open(dir.path()).unwrap();
        let new = NewFile::create_named(parent.as_fd()).unwrap();
        let temporary = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::rename(&temporary, dir.path().join("away")).unwrap();
        std::fs::write(&temporary, "of another user").unwrap();
        assert_eq!(new.replace(c"name").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(!dir.path().join("name").exists());
        assert_eq!(std::fs::read_to_string(&temporary).unwrap(), "of another user");
    }
}
