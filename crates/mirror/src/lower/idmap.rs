//! Static mapping of user and group ids between the source and the mount.

use std::fmt;
use std::str::FromStr;

/// A range of ids: `count` ids from `lower` on in the source appear as `shown` and following.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    lower: u32,
    shown: u32,
    count: u32,
}

/// Maps ids of the source to ids in the mount, and back. Ids outside all ranges stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdMap {
    runs: Vec<Run>,
}

/// Errors of parsing an id map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdMapError {
    /// The text does not have the form `FROM:TO[:COUNT]`.
    #[error(
        "'{0}' is not of the form FROM:TO[:COUNT], where FROM is an id in the source and TO the id shown for it"
    )]
    Syntax(String),
    /// A range is empty or exceeds the largest id (4,294,967,294).
    #[error("'{0}' is not a range of ids: ids range from 0 to 4294967294")]
    Range(String),
    /// Two ranges contain the same id.
    #[error("'{0}' overlaps another range: give each id once")]
    Overlap(String),
}

impl IdMap {
    /// Adds `FROM:TO[:COUNT]` (`/` is accepted in place of `:`).
    ///
    /// # Errors
    /// [`IdMapError`].
    pub fn add(&mut self, text: &str) -> Result<(), IdMapError> {
        let syntax = || IdMapError::Syntax(text.to_owned());
        let mut numbers = text.split([':', '/']).map(|number| number.parse::<u32>().map_err(|_| syntax()));
        let lower = numbers.next().ok_or_else(syntax)??;
        let shown = numbers.next().ok_or_else(syntax)??;
        let count = numbers.next().transpose()?.unwrap_or(1);
        if numbers.next().is_some() {
            return Err(syntax());
        }
        // The largest number means "no id" to the kernel.
        let fits = |start: u32| start.checked_add(count).is_some();
        if count == 0 || !fits(lower) || !fits(shown) {
            return Err(IdMapError::Range(text.to_owned()));
        }
        let run = Run { lower, shown, count };
        let meet = |a: u32, a_count: u32, b: u32| a < b + count && b < a + a_count;
        if self.runs.iter().any(|old| meet(old.lower, old.count, lower) || meet(old.shown, old.count, shown))
        {
            return Err(IdMapError::Overlap(text.to_owned()));
        }
        self.runs.push(run);
        Ok(())
    }

    /// Maps an id of the source to the mount.
    pub fn show(&self, id: u32) -> u32 {
        let covers = |run: &&Run| id.checked_sub(run.lower).is_some_and(|offset| offset < run.count);
        self.runs.iter().find(covers).map_or(id, |run| run.shown + (id - run.lower))
    }

    /// Maps an id of the mount to the source.
    pub fn store(&self, id: u32) -> u32 {
        let covers = |run: &&Run| id.checked_sub(run.shown).is_some_and(|offset| offset < run.count);
        self.runs.iter().find(covers).map_or(id, |run| run.lower + (id - run.shown))
    }

    /// Iterates over the ranges: first id of the source, first id in the mount, and count.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        self.runs.iter().map(|run| (run.lower, run.shown, run.count))
    }

    /// Reports whether both maps are empty.
    pub fn is_identity(&self) -> bool {
        self.runs.is_empty()
    }
}

impl FromStr for IdMap {
    type Err = IdMapError;

    /// Parses ranges separated by commas.
    fn from_str(text: &str) -> Result<Self, IdMapError> {
        let mut map = Self::default();
        text.split(',').try_for_each(|run| map.add(run))?;
        Ok(map)
    }
}

impl fmt::Display for IdMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, run) in self.runs.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(f, "{comma}{}:{}:{}", run.lower, run.shown, run.count)?;
        }
        Ok(())
    }
}

/// Id maps of users and groups.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdMaps {
    /// Map of user ids.
    pub users: IdMap,
    /// Map of group ids.
    pub groups: IdMap,
}

impl IdMaps {
    /// Reports whether both maps are empty.
    pub(crate) fn is_identity(&self) -> bool {
        self.users.is_identity() && self.groups.is_identity()
    }

    /// Maps the ids in an ACL (the value of `system.posix_acl_access` or `_default`) to the mount or to the source. A
    /// value in another format stays unchanged; the kernel rejects it if it is invalid.
    pub(crate) fn map_acl(&self, acl: &mut [u8], to_shown: bool) {
        const VERSION: u32 = 2;
        const USER: u16 = 0x02;
        const GROUP: u16 = 0x08;
        if self.is_identity() || acl.get(..4) != Some(&VERSION.to_le_bytes()) {
            return;
        }
        for entry in acl[4..].chunks_exact_mut(8) {
            let map = match u16::from_le_bytes([entry[0], entry[1]]) {
                USER => &self.users,
                GROUP => &self.groups,
                _ => continue,
            };
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let id = if to_shown { map.show(id) } else { map.store(id) };
            entry[4..].copy_from_slice(&id.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_there_and_back() {
        let map: IdMap = "1000:0,2000:100:10".parse().unwrap();
        assert_eq!((map.show(1000), map.store(0)), (0, 1000));
        assert_eq!((map.show(2009), map.store(109)), (109, 2009));
        assert_eq!((map.show(2010), map.store(110), map.show(7)), (2010, 110, 7));
        assert_eq!(map.to_string().parse(), Ok(map));
    }

    #[test]
    fn refuses_what_makes_no_sense() {
        for text in ["", "1", "1:", "a:b", "1:2:3:4", "-1:2"] {
            assert!(matches!(text.parse::<IdMap>(), Err(IdMapError::Syntax(_))), "{text}");
        }
        for text in ["1:2:0", "4294967295:1", "1:4294967295", "4294967290:1:6"] {
            assert!(matches!(text.parse::<IdMap>(), Err(IdMapError::Range(_))), "{text}");
        }
        for text in ["1:2,1:3", "1:2,3:2", "1:10:5,5:20"] {
            assert!(matches!(text.parse::<IdMap>(), Err(IdMapError::Overlap(_))), "{text}");
        }
    }

    #[test]
    fn ids_in_acls_are_mapped() {
        let maps = IdMaps { users: "1000:0".parse().unwrap(), groups: "50:60".parse().unwrap() };
        let entry =
            |tag: u16, id: u32| [&tag.to_le_bytes()[..], &6u16.to_le_bytes(), &id.to_le_bytes()].concat();
        let acl = |ids: [u32; 3]| {
            [&2u32.to_le_bytes()[..], &entry(2, ids[0]), &entry(8, ids[1]), &entry(1, ids[2])].concat()
        };
        let mut value = acl([1000, 50, u32::MAX]);
        maps.map_acl(&mut value, true);
        assert_eq!(value, acl([0, 60, u32::MAX]));
        maps.map_acl(&mut value, false);
        assert_eq!(value, acl([1000, 50, u32::MAX]));
        maps.map_acl(&mut [2, 0, 0], true);
    }
}
