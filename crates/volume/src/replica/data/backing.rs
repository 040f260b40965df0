//! Backing files: the data of regular files, in files named by inode number below the directory of the replica.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::failpoint::{OnDisk, on_disk};
use crate::private;
use crate::replica::ReplicaError;
use crate::replica::db::INO_RESERVATION;
use crate::replica::db::open_backing::is_same;
use crate::replica::db::open_backing::reopen;
use crate::replica::error::errno;

/// Returns the path of a backing file below the directory.
fn name(num: u64) -> String {
    format!("{:x}/{num:x}", num / INO_RESERVATION)
}

/// The directory of backing files.
pub(crate) struct BackingDir {
    data: PathBuf,
    /// The open directory: opening a file begins here rather than at the root.
    directory: OwnedFd,
}

pub(crate) fn unusable(path: &Path, error: io::Error) -> ReplicaError {
    ReplicaError::Directory { path: path.to_owned(), error }
}

/// The files of a replica that no other user may read, independent of the modes in the volume: they hold names, attributes and
/// small files.
const PRIVATE_FILES: [&str; 4] = ["replica.db", "replica.db-wal", "replica.db-shm", "volume"];

/// Creates the directory of a replica, keeps other users out, and locks it against other processes while the file is open.
pub(crate) fn lock(directory: &Path) -> Result<File, ReplicaError> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(directory).map_err(|error| unusable(directory, error))?;
    for name in PRIVATE_FILES {
        let path = directory.join(name);
        private::tighten(&path).map_err(|error| unusable(&path, error))?;
    }
    let path = directory.join("lock");
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).mode(0o600).open(&path);
    let lock = lock.map_err(|error| unusable(&path, error))?;
    // SQLite gives the mode of this file to its sidecar files.
    let path = directory.join("replica.db");
    let database = options.open(&path);
    drop(database.map_err(|error| unusable(&path, error))?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(Errno::WOULDBLOCK) => Err(ReplicaError::Busy(directory.to_owned())),
        Err(errno) => Err(unusable(&path, errno.into())),
    }
}

impl BackingDir {
    pub(crate) fn open(directory: &Path) -> Result<Self, ReplicaError> {
        let data = directory.join("data");
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        if let Err(error) = builder.create(&data)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(unusable(&data, error));
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            rustix::fs::open(&data, flags, Mode::empty()).map_err(|errno| unusable(&data, errno.into()))?;
        Ok(Self { data, directory })
    }

    pub(crate) fn path(&self, num: u64) -> PathBuf {
        self.data.join(name(num))
    }

    fn open_as(&self, num: u64, flags: OFlags) -> io::Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        Ok(openat(&self.directory, name(num), flags | OFlags::CLOEXEC, mode)?.into())
    }

    /// Creates an empty backing file, or truncates an existing one.
    pub(crate) fn create(&self, num: u64) -> io::Result<File> {
        self.with_directory(num, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
    }

    /// Opens a backing file, which is created if it does not exist.
    pub(crate) fn open_or_create(&self, num: u64) -> io::Result<File> {
        self.with_directory(num, OFlags::RDWR | OFlags::CREATE)
    }

    pub(crate) fn existing(&self, num: u64) -> io::Result<File> {
        self.open_as(num, OFlags::RDWR)
    }

    pub(crate) fn existing_to_read(&self, num: u64) -> io::Result<File> {
        self.open_as(num, OFlags::RDONLY)
    }

    /// Opens another, read-only descriptor of an open file.
    pub(crate) fn reopen_read_only(&self, num: u64, file: &File) -> io::Result<File> {
        // Opening by name takes half as long, but the name may be removed or refer to another file.
        match self.existing_to_read(num) {
            Ok(named) if is_same(&named, file)? => Ok(named),
            _ => reopen(file, false),
        }
    }

    fn with_directory(&self, num: u64, flags: OFlags) -> io::Result<File> {
        match self.open_as(num, flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if let Some(parent) = self.path(num).parent() {
                    std::fs::create_dir_all(parent)?;
                }
                self.open_as(num, flags)
            }
            opened => opened,
        }
    }

    /// Removes a backing file; open descriptors stay valid.
    pub(crate) fn remove(&self, num: u64) -> io::Result<()> {
        match std::fs::remove_file(self.path(num)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Makes the name of a backing file durable.
    pub(crate) fn sync_name(&self, num: u64) -> io::Result<()> {
        match self.path(num).parent() {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    }

    /// Makes all backing files durable.
    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        let dir = self.data_dir()?;
        rustix::fs::syncfs(&dir)?;
        on_disk(OnDisk::All(&dir));
        Ok(())
    }

    fn data_dir(&self) -> Result<File, Errno> {
        File::open(&self.data).map_err(errno)
    }

    /// Returns the numbers of the backing files, from `first` on.
    pub(crate) fn numbers_from(&self, first: u64) -> io::Result<Vec<u64>> {
        let hex = |name: std::ffi::OsString| u64::from_str_radix(name.to_str()?, 16).ok();
        let mut found = Vec::new();
        for group in std::fs::read_dir(&self.data)? {
            let group = group?;
            if hex(group.file_name()).is_none_or(|number| number < first / INO_RESERVATION) {
                continue;
            }
            for file in std::fs::read_dir(group.path())? {
                found.extend(hex(file?.file_name()).filter(|num| *num >= first));
            }
        }
        Ok(found)
    }

    /// Returns the space of the cache's file system.
    pub(crate) fn space(&self) -> Result<rustix::fs::StatVfs, Errno> {
        rustix::fs::statvfs(&self.data)
    }
}

impl crate::replica::Replica {
    /// Returns the 512-byte blocks that the backing file of an object occupies; `None` if there is none.
    pub fn cached_blocks(&self, num: u64) -> Option<u64> {
        Some(std::fs::metadata(self.inner.shared.files.path(num)).ok()?.blocks())
    }

    /// Opens the backing file of an object to read its data; `None` if there is none.
    pub(crate) fn backing(&self, num: u64) -> Option<File> {
        self.inner.shared.files.existing(num).ok()
    }
}
