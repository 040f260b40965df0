//! File handles: persistent references to inodes that need no open descriptor.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::sys;

/// Handles up to this size need no allocation. ext4 uses 8 bytes, tmpfs and XFS 12, btrfs 20.
const MAX_INLINE_BYTES: usize = 20;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Bytes {
    Inline { len: u8, bytes: [u8; MAX_INLINE_BYTES] },
    Boxed(Box<[u8]>),
}

/// A kernel file handle. It identifies an inode of one file system until the inode is deleted, even if its number is
/// reused.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct FileHandle {
    kind: i32,
    bytes: Bytes,
}

impl FileHandle {
    /// Returns the handle of an open file (O_PATH suffices).
    ///
    /// # Errors
    /// EOPNOTSUPP if the file system does not support handles.
    pub(super) fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let raw = sys::name_to_handle(fd)?;
        Ok(Self::new(raw.kind(), raw.bytes()))
    }

    pub(crate) fn new(kind: i32, handle: &[u8]) -> Self {
        let mut bytes = [0; MAX_INLINE_BYTES];
        let bytes = match bytes.get_mut(..handle.len()) {
            Some(room) => {
                room.copy_from_slice(handle);
                Bytes::Inline { len: handle.len() as u8, bytes }
            }
            None => Bytes::Boxed(handle.into()),
        };
        Self { kind, bytes }
    }

    /// Returns the handle type that the file system reported.
    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }

    /// Returns the opaque bytes of the handle.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline { len, bytes } => &bytes[..MAX_INLINE_BYTES.min(usize::from(*len))],
            Bytes::Boxed(bytes) => bytes,
        }
    }

    /// Heap use in bytes.
    pub(crate) fn heap(&self) -> usize {
        match &self.bytes {
            Bytes::Inline { .. } => 0,
            Bytes::Boxed(bytes) => bytes.len(),
        }
    }

    /// Opens the file. `mount` is an open file, not O_PATH, of the mount through which it is accessed.
    ///
    /// # Errors
    /// ESTALE if the inode was deleted; EPERM without CAP_DAC_READ_SEARCH; else the error of `open(2)`.
    pub(super) fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let raw = sys::RawHandle::new(self.kind, self.bytes()).ok_or(Errno::STALE)?;
        sys::open_by_handle(mount, &raw, flags)
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:02x?}", self.kind, self.bytes())
    }
}
