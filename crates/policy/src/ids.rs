//! Users, groups, and tables of ids that variables in paths stand for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Ids from the first to the last.
pub(crate) type IdRange = (u32, u32);

/// Users and groups by name, as `/etc/passwd` and `/etc/group` have them.
#[derive(Debug, Clone, Default)]
pub struct Names {
    pub(crate) users: BTreeMap<String, u32>,
    pub(crate) groups: BTreeMap<String, u32>,
}

impl Names {
    /// Reads the two files. Lines that are none are passed over.
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

    /// The number of a user.
    pub fn user(&self, name: &str) -> Option<u32> {
        self.users.get(name).copied()
    }

    /// The number of a group.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

/// Whether an id is in one of the ranges.
pub(crate) fn contains(ranges: &[IdRange], id: u32) -> bool {
    ranges.iter().any(|range| (range.0..=range.1).contains(&id))
}

/// What a variable in a path stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variable {
    /// `{uid}`: the number of a user.
    Uid,
    /// `{gid}`: the number of a group.
    Gid,
    /// `{user}`, or a table of the file: a name that stands for users. By index.
    Table(u16),
}

/// Names that stand for users.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) entries: BTreeMap<Vec<u8>, Vec<IdRange>>,
}

/// Whom a component of a path belongs to: callers who are this one meet the rule.
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
    /// Whom a name belongs to, if it is one that the variable can be.
    pub(crate) fn owner(self, tables: &[Table], name: &[u8]) -> Option<Owner> {
        let number = || {
            let text = std::str::from_utf8(name).ok()?;
            // "+5" and "05" are other names than "5".
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
