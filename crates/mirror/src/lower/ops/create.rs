//! Creation of files and links. Files are created with the caller's credentials, so that owner, group, ACL and quota
//! are the ones that a creation on the lower file system itself would give.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use shunt_fuse::NodeId;

use super::super::credentials::{AsCaller, KeepSetid};
use super::super::open_files::OpenFile;
use super::super::shares::Share;
use super::super::sys::ProcPath;
use super::super::{Caller, Component, Lower};
use super::open::{Opening, writes};
use super::{Found, open};

const S_ISGID: u32 = 0o2000;

impl Lower {
    /// Runs `make` with the caller's credentials. `setid` keeps the setgid bit of the mode: the client has checked that
    /// the caller may set it, while the daemon is in none of the caller's groups.
    fn as_caller<T>(
        &self,
        caller: Caller,
        umask: u32,
        setid: bool,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let _keep = KeepSetid::when(setid)?;
        let _caller = AsCaller::enter(self.stored(caller), umask)?;
        make()
    }

    fn make(
        &self,
        parent: NodeId,
        name: Component<'_>,
        caller: Caller,
        umask: u32,
        setid: bool,
        make: impl FnOnce(BorrowedFd<'_>, &CStr) -> Result<(), Errno>,
    ) -> Result<Found, Errno> {
        self.writable()?;
        let dir = self.dir(parent)?;
        self.as_caller(caller, umask, setid, || make(dir.as_fd(), name.as_cstr()))?;
        self.listings.changed(parent);
        self.lookup_at(parent, dir.as_fd(), name)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// The error of `mkdir(2)`.
    pub(crate) fn mkdir(
        &self,
        parent: NodeId,
        name: Component<'_>,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<Found, Errno> {
        self.make(parent, name, caller, umask, mode & S_ISGID != 0, |dir, name| {
            rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o7777))
        })
    }

    /// Creates a file, pipe, socket or device.
    ///
    /// # Errors
    /// The error of `mknod(2)`.
    pub(crate) fn mknod(
        &self,
        parent: NodeId,
        name: Component<'_>,
        mode: u32,
        device: (u32, u32),
        umask: u32,
        caller: Caller,
    ) -> Result<Found, Errno> {
        self.make(parent, name, caller, umask, mode & S_ISGID != 0, |dir, name| {
            let kind = FileType::from_raw_mode(mode);
            let device = rustix::fs::makedev(device.0, device.1);
            rustix::fs::mknodat(dir, name, kind, Mode::from_raw_mode(mode & 0o7777), device)
        })
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// The error of `symlink(2)`.
    pub(crate) fn symlink(
        &self,
        parent: NodeId,
        name: Component<'_>,
        target: &CStr,
        caller: Caller,
    ) -> Result<Found, Errno> {
        self.make(parent, name, caller, 0, false, |dir, name| rustix::fs::symlinkat(target, dir, name))
    }

    /// Creates and opens a file.
    ///
    /// # Errors
    /// The error of `open(2)`. ESTALE if the name exists already and the flags lack `O_EXCL`: only the client can check
    /// the caller's permissions on that file, so it must look the name up again.
    pub(crate) fn create(
        &self,
        parent: NodeId,
        name: Component<'_>,
        flags: u32,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<(Found, Opening), Errno> {
        self.writable()?;
        let share = self.room_for_open(caller)?;
        let dir = self.dir(parent)?;
        let open = open::filter(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = self.as_caller(caller, umask, mode & S_ISGID != 0, || {
            rustix::fs::openat(&dir, name.as_cstr(), open, Mode::from_raw_mode(mode & 0o7777))
        });
        let exclusive = OFlags::from_bits_retain(flags).contains(OFlags::EXCL);
        let file =
            made.map_err(|errno| if errno == Errno::EXIST && !exclusive { Errno::STALE } else { errno })?;
        self.listings.changed(parent);
        let made = self.opened(file, open, share)?;
        self.hints.note(made.0.id, parent);
        Ok(made)
    }

    /// Creates and opens an unnamed temporary file.
    ///
    /// # Errors
    /// The error of `open(2)` with `O_TMPFILE`.
    pub(crate) fn tmpfile(
        &self,
        parent: NodeId,
        flags: u32,
        mode: u32,
        umask: u32,
        caller: Caller,
    ) -> Result<(Found, Opening), Errno> {
        self.writable()?;
        let share = self.room_for_open(caller)?;
        let dir = self.dir(parent)?;
        // With O_TMPFILE, O_EXCL means that the file can never be linked.
        let exclusive = OFlags::from_bits_retain(flags) & OFlags::EXCL;
        let open = (open::filter(flags) - OFlags::TRUNC) | exclusive | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = self.as_caller(caller, umask, mode & S_ISGID != 0, || {
            rustix::fs::openat(&dir, c".", open, Mode::from_raw_mode(mode & 0o7777))
        })?;
        self.opened(file, open, share)
    }

    fn opened(&self, file: OwnedFd, flags: OFlags, share: Share) -> Result<(Found, Opening), Errno> {
        self.settle(&file, flags)?;
        let found = self.adopt(file.as_fd())?;
        let file = Arc::new(OpenFile::new(file, found.id, writes(flags), Some(share)));
        let handle = self.files.add(file.clone());
        if found.stat.stx_nlink == 0 {
            self.store_file(handle, &file);
        } else {
            self.store_opened(handle, &file, self.removals());
        }
        Ok((found, Opening { handle, file }))
    }

    /// Creates a hard link.
    ///
    /// # Errors
    /// The error of `link(2)`.
    pub(crate) fn link(&self, id: NodeId, parent: NodeId, name: Component<'_>) -> Result<Found, Errno> {
        self.writable()?;
        let (from, dir) = (self.open_path(id)?, self.dir(parent)?);
        match rustix::fs::linkat(&from, c"", &dir, name.as_cstr(), AtFlags::EMPTY_PATH) {
            // AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH; without it the kernel returns ENOENT.
            Err(Errno::NOENT) => {
                let path = ProcPath::new(&from);
                rustix::fs::linkat(CWD, path.as_cstr(), &dir, name.as_cstr(), AtFlags::SYMLINK_FOLLOW)?;
            }
            result => result?,
        }
        self.listings.changed(parent);
        self.lookup_at(parent, dir.as_fd(), name)
    }
}
