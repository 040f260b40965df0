//! Quotas of a volume and of its users.
//!
//! Limits are stored as an extended attribute of the root directory that is hidden from users: so they are synchronised with
//! the tree, are known offline, and apply on every node from the commit that set them. Each node enforces them itself; a store
//! never rejects a change that a node has acknowledged.

mod set;

pub use set::{Change, limits, set};

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The attribute. Its prefix is hidden from users.
pub const ATTRIBUTE: &[u8] = b"system.shunt.quota";

/// Maximum number of users with limits of their own.
pub const MAX_USERS: usize = 1024;

/// Limits; `None`: unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Bytes of regular files, by their sizes: holes count, names and attributes do not.
    pub bytes: Option<u64>,
    /// Number of files, directories and all other objects, each once, except the root directory.
    pub objects: Option<u64>,
}

impl Limit {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// All limits of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of the volume as a whole.
    pub volume: Limit,
    /// The limit of each user without limits of its own. User 0 is exempt.
    pub default_user: Limit,
    /// Of individual users, by their numbers in the volume.
    pub users: BTreeMap<u32, Limit>,
}

/// Space in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Bytes of regular files.
    pub bytes: u64,
    /// Number of objects.
    pub objects: u64,
}

impl Limits {
    /// Reports whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.volume.is_none() && self.default_user.is_none() && self.users.values().all(Limit::is_none)
    }

    /// Returns the limits of a user.
    pub fn of(&self, user: u32) -> Limit {
        match self.users.get(&user) {
            Some(limit) => *limit,
            None if user == 0 => Limit::default(),
            None => self.default_user,
        }
    }

    /// Parses the attribute. Unknown words, possibly of a later version, mean no limit.
    pub fn parse(value: &[u8]) -> Self {
        let mut limits = Self::default();
        for line in String::from_utf8_lossy(value).lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(whose), Some(bytes), Some(objects)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let limit = Limit { bytes: bytes.parse().ok(), objects: objects.parse().ok() };
            match whose {
                "volume" => limits.volume = limit,
                "each" => limits.default_user = limit,
                user => {
                    if let Ok(user) = user.parse()
                        && limits.users.len() < MAX_USERS
                    {
                        limits.users.insert(user, limit);
                    }
                }
            }
        }
        limits
    }

    /// Formats the attribute: a line for each limit, with bytes, objects, and `-` where there is none.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = String::new();
        let mut line = |whose: &str, limit: &Limit| {
            let word =
                |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(text, "{whose} {} {}", word(limit.bytes), word(limit.objects));
        };
        for (whose, limit) in [("volume", &self.volume), ("each", &self.default_user)] {
            if !limit.is_none() {
                line(whose, limit);
            }
        }
        self.users.iter().for_each(|(user, limit)| line(&user.to_string(), limit));
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_written_and_read() {
        let mut limits = Limits::default();
        assert!(limits.is_empty() && limits.to_bytes().is_empty());
        limits.volume.bytes = Some(1 << 40);
        limits.default_user.objects = Some(7);
        limits.users.insert(1000, Limit { bytes: Some(0), objects: None });
        limits.users.insert(0, Limit::default());
        assert_eq!(Limits::parse(&limits.to_bytes()), limits);
        assert_eq!(limits.of(1000), Limit { bytes: Some(0), objects: None });
        assert_eq!(limits.of(5).objects, Some(7));
        assert_eq!(limits.of(0), Limit::default());
        for odd in [&b"\xff\xfe"[..], b"volume", b"volume x y z\nnobody 1 1\n\n", b"later 1 2 3"] {
            assert!(Limits::parse(odd).is_empty(), "{odd:?}");
        }
    }
}
