//! Content access for rules that inspect files of the source.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::FileType;
use rustix::io::Errno;
use shunt_fuse::NodeId;
use shunt_mirror::lower::Lower;
use shunt_policy::Content;
use shunt_policy::redact::Bytes;

/// A file that is opened when its contents are first inspected.
pub(crate) struct LazyContent<'a> {
    lower: &'a Lower,
    node: NodeId,
    /// `Ok(None)` for anything but a regular file, which has no contents.
    file: OnceCell<Result<Option<OwnedFd>, Errno>>,
}

impl<'a> LazyContent<'a> {
    pub(crate) fn new(lower: &'a Lower, node: NodeId) -> Self {
        Self { lower, node, file: OnceCell::new() }
    }

    fn open(&self) -> Result<Option<OwnedFd>, Errno> {
        match self.lower.kind(self.node)? {
            FileType::RegularFile => self.lower.peek(self.node).map(Some),
            _ => Ok(None),
        }
    }
}

impl Content for LazyContent<'_> {
    fn read(&self, offset: u64, length: usize) -> Option<Vec<u8>> {
        let Some(file) = self.file.get_or_init(|| self.open()).as_ref().ok()? else {
            return Some(Vec::new());
        };
        let mut room = vec![0; length];
        let mut done = 0;
        while done < length {
            match rustix::io::pread(file, &mut room[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        room.truncate(done);
        Some(room)
    }
}

/// An open file as a source of bytes.
pub(crate) struct Opened<'a>(pub(crate) BorrowedFd<'a>);

impl Bytes for Opened<'_> {
    fn read_at(&self, offset: u64, room: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(self.0.as_fd(), room, offset)?)
    }
}
