//! The cases: what is measured, under which names.

use serde::Serialize;

/// The state of the kernel's caches before a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// The data or names were evicted.
    Cold,
    /// They were just used.
    Warm,
}

/// An operation on file data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// An operation on names and attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metadata {
    Create,
    Stat(Cache),
    Readdir(Cache),
    Open,
    Rename,
    Unlink,
}

/// The work of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads or writes the file in blocks.
    Data { access: Access, random: bool, block: u64, direct: bool, cache: Option<Cache> },
    /// An operation on each of the files of a directory.
    Metadata(Metadata),
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, unique in a plan.
    pub name: String,
    pub work: Work,
}

/// The cases and their limits.
#[derive(Clone, Debug)]
pub struct Plan {
    pub cases: Vec<Case>,
    /// Size of the data file, in bytes.
    pub size: u64,
    /// Files of the metadata cases.
    pub files: u32,
    pub rounds: u32,
    /// Seconds of all measurements.
    pub seconds: u64,
}

impl Plan {
    /// All cases for these block sizes whose names contain one of `only`, if it is not empty.
    pub fn cases(blocks: &[u64], drop_caches: bool, only: &[String]) -> Vec<Case> {
        let data = blocks.iter().flat_map(|block| data_cases(*block));
        let metadata = [
            ("create", Metadata::Create),
            ("stat warm", Metadata::Stat(Cache::Warm)),
            ("stat cold", Metadata::Stat(Cache::Cold)),
            ("open", Metadata::Open),
            ("readdir warm", Metadata::Readdir(Cache::Warm)),
            ("readdir cold", Metadata::Readdir(Cache::Cold)),
            ("rename", Metadata::Rename),
            ("unlink", Metadata::Unlink),
        ];
        let is_cold =
            |work: &Metadata| matches!(work, Metadata::Stat(Cache::Cold) | Metadata::Readdir(Cache::Cold));
        let metadata = metadata
            .into_iter()
            .filter(|(_, work)| drop_caches || !is_cold(work))
            .map(|(name, work)| Case { name: name.to_owned(), work: Work::Metadata(work) });
        let wanted =
            |case: &Case| only.is_empty() || only.iter().any(|text| case.name.contains(text.as_str()));
        data.chain(metadata).filter(wanted).collect()
    }

    /// Bytes that each side needs at most.
    pub fn needed_bytes(&self) -> u64 {
        let data = if self.has_data() { self.size } else { 0 };
        // An empty file takes an inode and a directory entry.
        let metadata = if self.has_metadata() { u64::from(self.files) * 1024 } else { 0 };
        data + metadata + (1 << 16)
    }

    /// Inodes that each side needs at most.
    pub fn needed_inodes(&self) -> u64 {
        3 + if self.has_metadata() { u64::from(self.files) } else { 0 }
    }

    pub fn has_data(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.work, Work::Data { .. }))
    }

    pub fn has_metadata(&self) -> bool {
        self.cases.iter().any(|case| matches!(case.work, Work::Metadata(_)))
    }
}

fn data_cases(block: u64) -> Vec<Case> {
    let size =
        if block.is_multiple_of(1 << 20) { format!("{}M", block >> 20) } else { format!("{}K", block >> 10) };
    let mut cases = Vec::new();
    for (access, verb) in [(Access::Write, "write"), (Access::Read, "read")] {
        for (random, order) in [(false, "sequential"), (true, "random")] {
            let ways: &[(&str, bool, Option<Cache>)] = match access {
                Access::Write => &[("buffered", false, None), ("direct", true, None)],
                Access::Read => &[
                    ("cold", false, Some(Cache::Cold)),
                    ("warm", false, Some(Cache::Warm)),
                    ("direct", true, None),
                ],
            };
            for (word, direct, cache) in ways {
                cases.push(Case {
                    name: format!("{verb} {order} {size} {word}"),
                    work: Work::Data { access, random, block, direct: *direct, cache: *cache },
                });
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_can_be_chosen() {
        let all = Plan::cases(&[4096, 1 << 20], true, &[]);
        let names: std::collections::HashSet<_> = all.iter().map(|case| &case.name).collect();
        assert_eq!((names.len(), all.len()), (28, 28));
        let some = Plan::cases(&[4096], false, &["rename".to_owned(), "direct".to_owned()]);
        let names: Vec<_> = some.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "write sequential 4K direct",
                "write random 4K direct",
                "read sequential 4K direct",
                "read random 4K direct",
                "rename"
            ]
        );
        assert!(!Plan::cases(&[4096], false, &[]).iter().any(|case| case.name == "stat cold"));
    }
}
