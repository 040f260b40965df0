//! Numbers in the takeover state: facts about inodes that a successor needs and that no open file or memory file holds.

use std::sync::OnceLock;

use shunt_fuse::Handle;
use shunt_fuse::takeover::Takeover;

/// The marks of a mount in the takeover state: a tag in bits 60 and 61, below it what it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The inode is closed, and still mapped writably.
    Mapped(u64),
    /// The directory was removed so many times while the kernel knew it.
    Removed { num: u64, times: u64 },
}

const MAPPED: u64 = 1;
const REMOVED: u64 = 2;
const TIMES_SHIFT: u32 = 44;
const MAX_MARKED_NUM: u64 = (1 << TIMES_SHIFT) - 1;

impl Mark {
    /// Returns `None` for numbers that are too large.
    fn encode(self) -> Option<u64> {
        match self {
            Self::Mapped(num) if num <= MAX_MARKED_NUM => Some(MAPPED << 60 | num),
            Self::Removed { num, times } if num <= MAX_MARKED_NUM && times < 1 << 16 => {
                Some(REMOVED << 60 | times << TIMES_SHIFT | num)
            }
            _ => None,
        }
    }

    pub(crate) fn decode(mark: u64) -> Option<Self> {
        let (num, times) = (mark & MAX_MARKED_NUM, (mark >> TIMES_SHIFT) & 0xffff);
        match mark >> 60 {
            MAPPED => Some(Self::Mapped(num)),
            REMOVED => Some(Self::Removed { num, times }),
            _ => None,
        }
    }
}

/// The session, once it has started, for the marks of a mount.
#[derive(Default)]
pub(crate) struct Marks(OnceLock<Handle>);

impl Marks {
    pub(crate) fn start(&self, session: &Handle) {
        self.0.set(session.clone()).ok();
    }

    pub(crate) fn takeover(&self) -> Option<&Takeover> {
        self.0.get().and_then(Handle::takeover)
    }

    pub(crate) fn add(&self, mark: Mark) {
        self.with(mark, Takeover::mark);
    }

    pub(crate) fn remove(&self, mark: Mark) {
        self.with(mark, Takeover::unmark);
    }

    fn with(&self, mark: Mark, change: impl FnOnce(&Takeover, u64)) {
        if let (Some(takeover), Some(mark)) = (self.takeover(), mark.encode()) {
            change(takeover, mark);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back() {
        for mark in [Mark::Mapped(5), Mark::Mapped(MAX_MARKED_NUM), Mark::Removed { num: 7, times: 3 }] {
            assert_eq!(Mark::decode(mark.encode().unwrap()), Some(mark));
        }
        assert_eq!(Mark::Mapped(MAX_MARKED_NUM + 1).encode(), None);
        assert_eq!(Mark::decode(17), None);
    }
}
