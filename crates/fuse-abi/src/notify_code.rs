//! Codes of notifications.

/// The type of a notification. Its number is sent in [`crate::OutHeader::error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum NotifyCode {
    /// A polled file became ready.
    Poll = 1,
    /// Drop cached attributes and data of a node.
    InvalInode = 2,
    /// Drop or expire a cached name.
    InvalEntry = 3,
    /// Store data in the page cache.
    Store = 4,
    /// Read data from the page cache.
    Retrieve = 5,
    /// Drop a removed name.
    Delete = 6,
    /// Resend all unanswered requests (7.40).
    Resend = 7,
    /// Expire all cached names (7.44).
    IncEpoch = 8,
    /// Evict unused nodes (7.45).
    Prune = 9,
}

impl NotifyCode {
    /// All codes, in the order of their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Poll,
        Self::InvalInode,
        Self::InvalEntry,
        Self::Store,
        Self::Retrieve,
        Self::Delete,
        Self::Resend,
        Self::IncEpoch,
        Self::Prune,
    ];

    /// Returns the code of this number; `None` if it is unknown.
    #[must_use]
    pub fn from_raw(raw: i32) -> Option<Self> {
        let index = usize::try_from(raw.checked_sub(1)?).ok()?;
        Self::ALL.get(index).copied()
    }

    /// Returns the number on the wire.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self as i32
    }

    /// Returns the lower-case name, as statistics and logs show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::InvalInode => "inval_inode",
            Self::InvalEntry => "inval_entry",
            Self::Store => "store",
            Self::Retrieve => "retrieve",
            Self::Delete => "delete",
            Self::Resend => "resend",
            Self::IncEpoch => "inc_epoch",
            Self::Prune => "prune",
        }
    }
}
