//! What is open: what a new server must know of each file and directory that the kernel has open.
//!
//! A record lies at the index that the lower 32 bits of the handle tell.
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

use shunt_fuse_abi::OpenOut;

use super::state::{BACKING_HIGH, DIRECTORIES, DIRECTORIES_HIGH, FILES, FILES_HIGH, OPEN_WORDS, State};
use crate::id::{FileHandle, NodeId};

/// An open file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRecord {
    /// Its handle.
    pub handle: FileHandle,
    /// The inode.
    pub node: NodeId,
    /// `O_*` flags of the caller.
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

    pub(crate) fn reply(&self) -> OpenOut {
        OpenOut { fh: self.handle.0, open_flags: self.open_flags, backing_id: self.backing as i32 }
    }
}

/// Files or directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

impl Kind {
    fn most(self) -> usize {
        match self {
            Kind::File => FILES,
            Kind::Directory => DIRECTORIES,
        }
    }

    fn high(self, state: &State) -> &AtomicU64 {
        match self {
            Kind::File => state.word(FILES_HIGH),
            Kind::Directory => state.word(DIRECTORIES_HIGH),
        }
    }

    fn words(self, state: &State, handle: FileHandle) -> Option<&[AtomicU64; OPEN_WORDS]> {
        let index = handle.0 as u32 as usize;
        (handle.0 != 0 && index < self.most()).then(|| match self {
            Kind::File => state.file(index),
            Kind::Directory => state.directory(index),
        })
    }
}

/// How long a new record waits for the old one in its place to be taken away. That is another thread's next step; only
/// one that nobody will ever take away lasts longer.
const SETTLE_TIMEOUT: Duration = Duration::from_millis(100);

/// Writes a record down. Tells `false` where there is no place for this handle.
///
/// The file system gives a number out again once it has closed the handle, which is a little before the record goes:
/// what [`remove`] does last must not hit the new record.
pub(super) fn add(state: &State, kind: Kind, record: &OpenRecord) -> bool {
    let Some(words) = kind.words(state, record.handle) else { return false };
    let is_free = || words[0].load(Ordering::Acquire) == 0 && words[4].load(Ordering::Acquire) == 0;
    if !is_free() {
        let start = Instant::now();
        while !is_free() && start.elapsed() < SETTLE_TIMEOUT {
            std::thread::yield_now();
        }
    }
    kind.high(state).fetch_max(u64::from(record.handle.0 as u32) + 1, Ordering::Release);
    state.word(BACKING_HIGH).fetch_max(record.backing.into(), Ordering::Release);
    words[1].store(record.node.0, Ordering::Relaxed);
    words[2].store(record.opener, Ordering::Relaxed);
    words[3].store(u64::from(record.flags) | u64::from(record.open_flags) << 32, Ordering::Relaxed);
    words[4].store(record.backing.into(), Ordering::Relaxed);
    words[0].store(record.handle.0, Ordering::Release);
    true
}

/// Whether this very handle is open.
pub(super) fn holds(state: &State, kind: Kind, handle: FileHandle) -> bool {
    kind.words(state, handle).is_some_and(|words| words[0].load(Ordering::Acquire) == handle.0)
}

/// Takes a record away; `close` ends the use of its backing file.
pub(super) fn remove(state: &State, kind: Kind, handle: FileHandle, close: impl FnOnce()) {
    let words = kind.words(state, handle);
    // A newer handle at the same index stays.
    let ours = words.filter(|words| words[0].load(Ordering::Acquire) == handle.0);
    if let Some(words) = ours {
        words[0].store(0, Ordering::Release);
    }
    let backing = ours.map(|words| words[4].load(Ordering::Acquire));
    close();
    // Until here it tells that the backing file may still be registered. A new record that lost its patience stays.
    if let (Some(words), Some(backing)) = (ours, backing) {
        let _ = words[4].compare_exchange(backing, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

/// Backing files of records that were being made or taken away.
pub(super) fn doubtful_backings(state: &State) -> impl Iterator<Item = u32> {
    let high = (Kind::File.high(state).load(Ordering::Acquire) as usize).min(FILES);
    (0..high).filter_map(|index| {
        let words = state.file(index);
        let backing = words[4].swap(0, Ordering::AcqRel) as u32;
        if words[0].load(Ordering::Acquire) != 0 {
            words[4].store(backing.into(), Ordering::Release);
            return None;
        }
        (backing != 0).then_some(backing)
    })
}

/// All that is open. Records that cannot be are left out.
pub(super) fn all(state: &State, kind: Kind) -> Vec<OpenRecord> {
    let high = (kind.high(state).load(Ordering::Acquire) as usize).min(kind.most());
    let read = |index: usize| {
        let words = match kind {
            Kind::File => state.file(index),
            Kind::Directory => state.directory(index),
        };
        let word = |place: usize| words[place].load(Ordering::Relaxed);
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
