//! The state that a server leaves to its successor, as words in a memory file. It is valid at any instant, so it survives a crash
//! at any point.
//!
//! | words | meaning |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 1 | [`VERSION`] |
//! | 2 | minor version of the protocol, and the largest write above bit 32 |
//! | 3 | capabilities granted |
//! | 4 | read-ahead, and the profile (0 passthrough, 1 write-back) above bit 32 |
//! | 5 | high-water mark of open files: no index of [`MAX_FILES`] from here on was ever used |
//! | 6 | the same for [`MAX_DIRECTORIES`] |
//! | 7 | highest number of a backing file |
//! | 8 | high-water mark of the slots of [`MAX_MARKS`] |
//! | 9 | 1 if there was no room for one of them |
//! | from 512 | [`MAX_INTENTS`] of 16 words each: [`intents`](super::intents) |
//! | then | [`MAX_FILES`] and [`MAX_DIRECTORIES`] of 8 words each: [`opens`](super::opens) |
//! | then | [`MAX_MARKS`] of a word each: [`marks`](super::marks) |

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use shunt_fuse_abi::InitFlags;

use super::map::Map;
use crate::negotiate::{Negotiated, Profile};

/// Version of everything that one server leaves to the next: this layout, the messages of the guardian, and the file systems'
/// encoding of node ids, handles and stored descriptors. A server of an older version cannot take over.
///
/// Version 3 added backing files that are kept for programs in the kernel. What a server of version 2 left is a part of it.
pub const VERSION: u32 = 3;
const OLDEST_VERSION: u32 = 2;

const MAGIC: u64 = u64::from_le_bytes(*b"shunt\0ts");

/// Maximum number of requests in flight with an intent.
pub(super) const MAX_INTENTS: usize = 2048;
pub(super) const INTENT_WORDS: usize = 16;
/// Maximum number of open files and directories that are recorded for a new server.
pub(super) const MAX_FILES: usize = 1 << 20;
pub(super) const MAX_DIRECTORIES: usize = 1 << 18;
pub(super) const OPEN_WORDS: usize = 8;
/// Maximum number of marks.
pub(super) const MAX_MARKS: usize = 1 << 18;

const HEADER_WORDS: usize = 512;
const INTENTS_AT: usize = HEADER_WORDS;
const FILES_AT: usize = INTENTS_AT + MAX_INTENTS * INTENT_WORDS;
const DIRECTORIES_AT: usize = FILES_AT + MAX_FILES * OPEN_WORDS;
const MARKS_AT: usize = DIRECTORIES_AT + MAX_DIRECTORIES * OPEN_WORDS;
pub(super) const WORDS: usize = MARKS_AT + MAX_MARKS;

pub(super) const FILES_HIGH_WORD: usize = 5;
pub(super) const DIRECTORIES_HIGH_WORD: usize = 6;
pub(super) const BACKING_HIGH_WORD: usize = 7;
pub(super) const MARKS_HIGH_WORD: usize = 8;
pub(super) const MARKS_LOST_WORD: usize = 9;

/// The state of a session, valid at any instant.
#[derive(Debug)]
pub(super) struct TakeoverState(Map);

impl TakeoverState {
    pub(super) fn create(negotiated: &Negotiated) -> io::Result<Self> {
        let state = Self(Map::create(WORDS)?);
        let profile = match negotiated.profile {
            Profile::Passthrough => 0,
            Profile::Writeback => 1,
        };
        let words = [
            MAGIC,
            u64::from(VERSION),
            u64::from(negotiated.minor) | u64::from(negotiated.max_write) << 32,
            negotiated.granted.bits(),
            u64::from(negotiated.max_readahead) | profile << 32,
        ];
        for (index, word) in words.into_iter().enumerate() {
            state.word(index).store(word, Ordering::Relaxed);
        }
        Ok(state)
    }

    /// Opens the state of another server, and reads the negotiated features.
    pub(super) fn open(file: OwnedFd) -> io::Result<(Self, Negotiated)> {
        let state = Self(Map::open(file, WORDS)?);
        let word = |index: usize| state.word(index).load(Ordering::Relaxed);
        let version = word(1);
        if word(0) != MAGIC || !(u64::from(OLDEST_VERSION)..=u64::from(VERSION)).contains(&version) {
            return Err(invalid(format!(
                "the takeover state has version {version}; this server reads {OLDEST_VERSION} to {VERSION}"
            )));
        }
        // This server may add to the state: from here on, an older one cannot continue it.
        state.word(1).store(VERSION.into(), Ordering::Relaxed);
        let negotiated = Negotiated {
            minor: word(2) as u32,
            granted: InitFlags::from_bits_retain(word(3)),
            refused: Vec::new(),
            max_write: (word(2) >> 32) as u32,
            max_readahead: word(4) as u32,
            profile: if word(4) >> 32 == 0 { Profile::Passthrough } else { Profile::Writeback },
        };
        if !(4096..=(64 << 20)).contains(&negotiated.max_write) {
            return Err(invalid(format!(
                "invalid maximum write size {} in the takeover state",
                negotiated.max_write
            )));
        }
        Ok((state, negotiated))
    }

    pub(super) fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }

    pub(super) fn intent(&self, slot: usize) -> &[AtomicU64; INTENT_WORDS] {
        record(&self.0[INTENTS_AT..FILES_AT], slot)
    }

    pub(super) fn file(&self, index: usize) -> &[AtomicU64; OPEN_WORDS] {
        record(&self.0[FILES_AT..DIRECTORIES_AT], index)
    }

    pub(super) fn directory(&self, index: usize) -> &[AtomicU64; OPEN_WORDS] {
        record(&self.0[DIRECTORIES_AT..MARKS_AT], index)
    }

    pub(super) fn mark(&self, index: usize) -> &AtomicU64 {
        &self.0[MARKS_AT + index]
    }
}

fn record<const N: usize>(words: &[AtomicU64], index: usize) -> &[AtomicU64; N] {
    words[index * N..].first_chunk().expect("the record is inside the array")
}

impl AsFd for TakeoverState {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
