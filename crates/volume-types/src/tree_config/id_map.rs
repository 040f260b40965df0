//! Mapping of owners (idmapping): names are shared by all nodes, numbers are local to each. Volumes store numbers that
//! `users.toml` assigns to names; a node shows its own numbers for these names.

use std::collections::{BTreeMap, BTreeSet};

/// Fallback for a machine without an account `nobody`.
pub const NOBODY: u32 = 65_534;

/// The largest valid id: the next one means "no id" to the kernel.
pub(super) const MAX_ID: u32 = u32::MAX - 1;

/// Maps users, or groups, between the numbers in volumes and the numbers that this machine shows.
///
/// - An owner with a known name is shown as this machine's number for the name.
/// - An owner with a known name without an account on this machine is shown as nobody.
/// - An owner without a known name is shown as this machine's default; without a default as the same number, or as nobody if
///   that number belongs to another account on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnerMap {
    shown: BTreeMap<u32, u32>,
    stored: BTreeMap<u32, u32>,
    /// Numbers in volumes that have a name, but no account here.
    unmapped: BTreeSet<u32>,
    default: Option<u32>,
    nobody: Option<u32>,
}

impl OwnerMap {
    /// Builds a mapping. `owners`: all names with their numbers in volumes. `own`: this machine's numbers that override
    /// `account`, its account of a name. If two owners would get the same number, the second is nobody.
    pub fn new(
        owners: &BTreeMap<String, u32>,
        own: &BTreeMap<String, u32>,
        default: Option<u32>,
        account: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        let mut map = Self { default, nobody: account("nobody"), ..Self::default() };
        // Configured numbers take precedence over accounts.
        let by_word = owners.iter().filter_map(|(name, stored)| Some((*stored, *own.get(name)?)));
        let by_account = owners
            .iter()
            .filter(|(name, _)| !own.contains_key(*name))
            .filter_map(|(name, stored)| Some((*stored, account(name)?)));
        for (stored, shown) in by_word.chain(by_account) {
            if !map.stored.contains_key(&shown) && !map.shown.contains_key(&stored) {
                map.stored.insert(shown, stored);
                map.shown.insert(stored, shown);
            }
        }
        map.unmapped = owners.values().filter(|stored| !map.shown.contains_key(stored)).copied().collect();
        map
    }

    fn nobody(&self) -> u32 {
        self.nobody.unwrap_or(NOBODY)
    }

    /// Returns the number that this machine shows for an owner in a volume.
    pub fn to_local(&self, stored: u32) -> u32 {
        if let Some(shown) = self.shown.get(&stored) {
            return *shown;
        }
        if self.unmapped.contains(&stored) {
            return self.nobody();
        }
        match self.default {
            Some(default) => default,
            None if self.stored.contains_key(&stored) => self.nobody(),
            None => stored,
        }
    }

    /// Returns the owner in a volume for a number of this machine. If it is not shown as the same number, nobody may use it.
    pub fn store(&self, shown: u32) -> u32 {
        self.stored.get(&shown).copied().unwrap_or(shown)
    }

    /// Reports whether the mapping changes no number.
    pub fn is_identity(&self) -> bool {
        self.shown.iter().all(|(stored, shown)| stored == shown)
            && self.unmapped.is_empty()
            && self.default.is_none()
    }

    /// Formats the mapping as lines `PREFIX STORED SHOWN`, `PREFIX stranger STORED`, `PREFIX default SHOWN` and `PREFIX nobody
    /// SHOWN`.
    pub fn to_text(&self, prefix: &str) -> String {
        let mut text = String::new();
        let mut line = |words: String| text.extend([prefix, " ", &words, "\n"]);
        self.shown.iter().for_each(|(stored, shown)| line(format!("{stored} {shown}")));
        self.unmapped.iter().for_each(|stored| line(format!("stranger {stored}")));
        self.default.iter().for_each(|shown| line(format!("default {shown}")));
        self.nobody.iter().for_each(|shown| line(format!("nobody {shown}")));
        text
    }

    /// Parses lines of [`to_text`](Self::to_text), ignoring those with other prefixes; `None` if one is malformed.
    pub fn from_text(prefix: &str, text: &str) -> Option<Self> {
        let mut map = Self::default();
        for line in text.lines() {
            let Some(words) = line.strip_prefix(prefix).and_then(|words| words.strip_prefix(' ')) else {
                continue;
            };
            let (what, number) = words.split_once(' ').unwrap_or(("", words));
            let number = number.parse().ok()?;
            match what {
                "stranger" => drop(map.unmapped.insert(number)),
                "default" => map.default = Some(number),
                "nobody" => map.nobody = Some(number),
                stored => {
                    let stored = stored.parse().ok()?;
                    map.shown.insert(stored, number);
                    map.stored.insert(number, stored);
                }
            }
        }
        Some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, u32)]) -> BTreeMap<String, u32> {
        pairs.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
    }

    fn people(default: Option<u32>) -> OwnerMap {
        // ada is 1000 in volumes, and 2000 here by configuration; bob is 1001, and has the account 1000 here; eve has no
        // account.
        let known = map(&[("ada", 1000), ("bob", 1001), ("eve", 1002)]);
        let account = |name: &str| match name {
            "ada" => Some(7),
            "bob" => Some(1000),
            "nobody" => Some(99),
            _ => None,
        };
        OwnerMap::new(&known, &map(&[("ada", 2000)]), default, account)
    }

    #[test]
    fn names_lead_to_the_numbers_of_this_machine() {
        let people = people(None);
        assert_eq!([1000, 1001, 1002, 5].map(|stored| people.to_local(stored)), [2000, 1000, 99, 5]);
        assert_eq!([2000, 1000, 5].map(|shown| people.store(shown)), [1000, 1001, 5]);
        // 2000 in the volume has no name; it is not ada, who has that number here.
        assert_eq!(people.to_local(2000), 99);
        // 1002 on this machine is not eve, who has that number in volumes: it cannot own anything.
        assert_ne!(people.to_local(people.store(1002)), 1002);
        assert!(!people.is_identity());
    }

    #[test]
    fn a_default_stands_for_the_others() {
        let people = people(Some(60_000));
        assert_eq!([1000, 1002, 5].map(|stored| people.to_local(stored)), [2000, 99, 60_000]);
    }

    #[test]
    fn two_people_never_get_one_number() {
        let known = map(&[("ada", 1000), ("bob", 1001)]);
        let people = OwnerMap::new(&known, &map(&[("ada", 5), ("bob", 5)]), None, |_| None);
        assert_eq!([1000, 1001].map(|stored| people.to_local(stored)), [5, NOBODY]);
        assert_eq!(people.store(5), 1000);
    }

    #[test]
    fn it_is_written_down_and_read_again() {
        let people = people(Some(3));
        let text = format!("{}group 5 6\n", people.to_text("user"));
        assert_eq!(OwnerMap::from_text("user", &text), Some(people));
        assert_eq!(OwnerMap::from_text("group", &text).unwrap().to_local(5), 6);
        assert_eq!(OwnerMap::from_text("user", "user a b\n"), None);
    }
}
