//! Open file records: the state of each open file and directory that a new server needs.
//!
//! The lower 32 bits of the handle are the index of its record.
//!
//! | word | meaning |
//! |---|---|
//! | 0 | the handle, 0 while nothing is there. Written last, cleared first |
//! | 1 | node |
//! | 2 | unique of the request that opened it |
//! | 3 | `O_*` flags of the caller, and above bit 32 the `FOPEN_*` flags of the reply |
//! | 4 | number of the backing file, 0 where it is not passed through |

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_fuse_abi::{OpenOut, OpenOutFlags};

use super::state::{
    BACKING_HIGH_WORD, DIRECTORIES_HIGH_WORD, FILES_HIGH_WORD, MAX_DIRECTORIES, MAX_FILES, OPEN_WORDS,
    TakeoverState,
};
use crate::id::{FileHandle, NodeId};

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRecord {
    /// The handle.
    pub handle: FileHandle,
    /// Its inode.
    pub node: NodeId,
    /// The caller's `O_*` flags.
    pub flags: u32,
    pub(crate) opener: u64,
    pub(crate) open_flags: u32,
    pub(crate) backing: u32,
}

impl OpenRecord {
    pub(crate) fn new(opener: u64, node: NodeId, flags: u32, out: &OpenOut) -> Self {
        let (handle, backing) = (FileHandle(out.fh), out.backing_id.max(0) as u32);
        Self { handle, node, flags, opener, open_flags: out.open_flags, backing }
    }

    /// Reports whether the kernel reads and writes its backing file without the server.
    pub fn is_passed_through(&self) -> bool {
        self.backing != 0
    }

    /// Reports whether the kernel reads the file through its page cache.
    pub fn is_cached(&self) -> bool {
        let flags = OpenOutFlags::from_bits_retain(self.open_flags);
        !flags.intersects(OpenOutFlags::DIRECT_IO | OpenOutFlags::PASSTHROUGH)
    }

    pub(crate) fn reply(&self) -> OpenOut {
        OpenOut { fh: self.handle.0, open_flags: self.open_flags, backing_id: self.backing as i32 }
    }
}

/// The kind of an open record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenKind {
    File,
    Directory,
}

impl OpenKind {
    fn max_opens(self) -> usize {
        match self {
            OpenKind::File => MAX_FILES,
            OpenKind::Directory => MAX_DIRECTORIES,
        }
    }

    fn high(self, state: &TakeoverState) -> &AtomicU64 {
        match self {
            OpenKind::File => state.word(FILES_HIGH_WORD),
            OpenKind::Directory => state.word(DIRECTORIES_HIGH_WORD),
        }
    }

    fn words(self, state: &TakeoverState, handle: FileHandle) -> Option<&[AtomicU64; OPEN_WORDS]> {
        let index = handle.0 as u32 as usize;
        (handle.0 != 0 && index < self.max_opens()).then(|| match self {
            OpenKind::File => state.file(index),
            OpenKind::Directory => state.directory(index),
        })
    }
}

/// Timeout for the previous record of an index to be removed. That is another thread's next step; only a record that no thread
/// will ever remove stays longer.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);

/// Writes a record. Returns `false` where this handle has no slot.
///
/// The file system reuses a number once it has closed the handle, which is a little before the record is removed: the last step
/// of [`remove`] must not hit the new record.
pub(super) fn add(state: &TakeoverState, kind: OpenKind, record: &OpenRecord) -> bool {
    let Some(words) = kind.words(state, record.handle) else { return false };
    let is_free = || words[0].load(Ordering::Acquire) == 0 && words[4].load(Ordering::Acquire) == 0;
    if !is_free() {
        let start = Instant::now();
        while !is_free() && start.elapsed() < SETTLE_TIMEOUT {
            std::thread::yield_now();
        }
    }
    kind.high(state).fetch_max(u64::from(record.handle.0 as u32) + 1, Ordering::Release);
    state.word(BACKING_HIGH_WORD).fetch_max(record.backing.into(), Ordering::Release);
    words[1].store(record.node.0, Ordering::Relaxed);
    words[2].store(record.opener, Ordering::Relaxed);
    words[3].store(u64::from(record.flags) | u64::from(record.open_flags) << 32, Ordering::Relaxed);
    words[4].store(record.backing.into(), Ordering::Relaxed);
    words[0].store(record.handle.0, Ordering::Release);
    true
}

/// Reports whether this very handle is open.
pub(super) fn is_open(state: &TakeoverState, kind: OpenKind, handle: FileHandle) -> bool {
    kind.words(state, handle).is_some_and(|words| words[0].load(Ordering::Acquire) == handle.0)
}

/// Removes a record; `close` ends the use of its backing file.
pub(super) fn remove(state: &TakeoverState, kind: OpenKind, handle: FileHandle, close: impl FnOnce()) {
    let words = kind.words(state, handle);
    // A newer handle at the same index is kept.
    let ours = words.filter(|words| words[0].load(Ordering::Acquire) == handle.0);
    if let Some(words) = ours {
        words[0].store(0, Ordering::Release);
    }
    let backing = ours.map(|words| words[4].load(Ordering::Acquire));
    close();
    // Until here the record shows that the backing file may still be registered. A new record whose wait timed out is kept.
    if let (Some(words), Some(backing)) = (ours, backing) {
        let _ = words[4].compare_exchange(backing, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Returns the records that were being written or removed.
fn doubtful(state: &TakeoverState) -> impl Iterator<Item = &[AtomicU64; OPEN_WORDS]> {
    let high = (OpenKind::File.high(state).load(Ordering::Acquire) as usize).min(MAX_FILES);
    let is_doubtful = |words: &&[AtomicU64; OPEN_WORDS]| {
        words[0].load(Ordering::Acquire) == 0 && words[4].load(Ordering::Acquire) != 0
    };
    (0..high).map(|index| state.file(index)).filter(is_doubtful)
}

/// Returns the backing files of records that were being written or removed.
pub(super) fn doubtful_backings(state: &TakeoverState) -> impl Iterator<Item = u32> {
    doubtful(state).map(|words| words[4].load(Ordering::Acquire) as u32)
}

/// Forgets these records, once their backing files are closed and before the first new open.
pub(super) fn clear_doubtful(state: &TakeoverState) {
    doubtful(state).for_each(|words| words[4].store(0, Ordering::Release));
}

/// Returns all open records. Invalid records are skipped.
pub(super) fn all(state: &TakeoverState, kind: OpenKind) -> Vec<OpenRecord> {
    let high = (kind.high(state).load(Ordering::Acquire) as usize).min(kind.max_opens());
    let read = |index: usize| {
        let words = match kind {
            OpenKind::File => state.file(index),
            OpenKind::Directory => state.directory(index),
        };
        let word = |index: usize| words[index].load(Ordering::Relaxed);
        let handle = word(0);
        (handle != 0 && handle as u32 as usize == index && word(1) != 0).then(|| OpenRecord {
            handle: FileHandle(handle),
            node: NodeId(word(1)),
            flags: word(3) as u32,
            opener: word(2),
            open_flags: (word(3) >> 32) as u32,
            backing: word(4) as u32,
        })
    };
    (0..high).filter_map(read).collect()
}
