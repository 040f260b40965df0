//! Codes of notifications.

/// What a notification tells the kernel. The number stands in [`crate::OutHeader::error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
pub enum NotifyCode {
    /// A polled file became ready.
    Poll = 1,
    /// Drop cached attributes and data of a node.
    InvalInode = 2,
    /// Drop or expire a cached name.
    InvalEntry = 3,
    /// Put data into the page cache.
    Store = 4,
    /// Ask for data from the page cache.
    Retrieve = 5,
    /// A name was removed.
    Delete = 6,
    /// Send all unanswered requests again (7.40).
    Resend = 7,
    /// Expire all cached names (7.44).
    IncEpoch = 8,
    /// Evict nodes that nobody uses (7.45).
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

    /// The code of this number; `None` if there is none.
    #[must_use]
    pub fn from_raw(raw: i32) -> Option<Self> {
        let place = usize::try_from(raw.checked_sub(1)?).ok()?;
        Self::ALL.get(place).copied()
    }

    /// The number on the wire.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self as i32
    }

    /// Lower-case name, as statistics and logs show it.
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
