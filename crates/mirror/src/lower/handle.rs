//! File handles: how an inode is named without holding it open.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::sys;

/// Handles of this size need no allocation. ext4 uses 8 bytes, tmpfs and XFS 12, btrfs 20.
const INLINE: usize = 20;

#[derive(Clone, PartialEq, Eq, Hash)]
enum Bytes {
    Inline { len: u8, bytes: [u8; INLINE] },
    Boxed(Box<[u8]>),
}

/// A kernel file handle. It names an inode of one file system until the inode is deleted, reuse of its number
/// included.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileHandle {
    kind: i32,
    bytes: Bytes,
}

impl FileHandle {
    /// The handle of an open file (O_PATH will do).
    ///
    /// # Errors
    /// EOPNOTSUPP where the file system has none.
    pub fn of(fd: BorrowedFd<'_>) -> Result<Self, Errno> {
        let raw = sys::name_to_handle(fd)?;
        Ok(Self::new(raw.kind(), raw.bytes()))
    }

    pub(crate) fn new(kind: i32, handle: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        let bytes = match bytes.get_mut(..handle.len()) {
            Some(room) => {
                room.copy_from_slice(handle);
                Bytes::Inline { len: handle.len() as u8, bytes }
            }
            None => Bytes::Boxed(handle.into()),
        };
        Self { kind, bytes }
    }

    /// What kind of handle the file system says it is.
    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }

    /// What is in it.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Inline { len, bytes } => &bytes[..INLINE.min(usize::from(*len))],
            Bytes::Boxed(bytes) => bytes,
        }
    }

    /// Bytes on the heap.
    pub(crate) fn heap(&self) -> usize {
        match &self.bytes {
            Bytes::Inline { .. } => 0,
            Bytes::Boxed(bytes) => bytes.len(),
        }
    }

    /// Opens the file. `mount` is an open file, not O_PATH, of the mount through which it is to be seen.
    ///
    /// # Errors
    /// ESTALE where the inode is gone; EPERM without CAP_DAC_READ_SEARCH; else those of `open(2)`.
    pub fn open(&self, mount: BorrowedFd<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        let raw = sys::RawHandle::new(self.kind, self.bytes()).ok_or(Errno::STALE)?;
        sys::open_by_handle(mount, &raw, flags)
    }
}

impl fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:02x?}", self.kind, self.bytes())
    }
}
