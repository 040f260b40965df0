//! User and group ids, and the variables in paths that stand for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An inclusive range of ids.
pub(crate) type IdRange = (u32, u32);

/// Users and groups by name, as in `/etc/passwd` and `/etc/group`.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub(crate) users: BTreeMap<String, u32>,
    pub(crate) groups: BTreeMap<String, u32>,
}

impl Names {
    /// Parses the two files and skips malformed lines.
    pub fn parse(passwd: &str, group: &str) -> Self {
        let read = |text: &str| {
            let line = |line: &str| {
                let mut fields = line.split(':');
                let name = fields.next()?.to_owned();
                Some((name, fields.nth(1)?.parse().ok()?))
            };
            text.lines().filter_map(line).collect()
        };
        Self { users: read(passwd), groups: read(group) }
    }

    /// Returns the id of a user.
    pub fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    /// Returns the id of a group.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

/// Reports whether an id is in one of the ranges.
pub(crate) fn contains(ranges: &[IdRange], id: u32) -> bool {
    ranges.iter().any(|range| (range.0..=range.1).contains(&id))
}

/// A variable in a path pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `{uid}`: a user id.
    Uid,
    /// `{gid}`: a group id.
    Gid,
    /// `{user}`, or a table of the policy file that maps names to users; an index.
    Table(u16),
}

/// A table that maps names to users.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) entries: BTreeMap<Vec<u8>, Vec<IdRange>>,
}

/// The owner that a path component names: the rule applies to callers that match it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Owner {
    /// This user.
    Uid(u32),
    /// Members of this group.
    Gid(u32),
    /// One of these users.
    Uids(Vec<IdRange>),
}

impl Variable {
    /// Returns the owner that a name stands for, if the variable can have that value.
    pub(crate) fn owner(self, tables: &[Table], name: &[u8]) -> Option<Owner> {
        let number = || {
            let text = std::str::from_utf8(name).ok()?;
            // "+5" and "05" are different names from "5".
            let number: u32 = text.parse().ok()?;
            (number.to_string() == text).then_some(number)
        };
        match self {
            Self::Uid => number().map(Owner::Uid),
            Self::Gid => number().map(Owner::Gid),
            Self::Table(index) => tables.get(usize::from(index))?.entries.get(name).cloned().map(Owner::Uids),
        }
    }
}
