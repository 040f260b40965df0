//! Past versions of an object, or of all objects that had one name, each with time and author unless the log was truncated.

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{LinkName, Object, Time};
use crate::store::history::{History, Version};
use crate::store::{MetaStore, StoreError};

/// The object at a path from a commit on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathVersion {
    /// The commit.
    pub since: Seq,
    /// Time and author of the commit, unless it was truncated from the log.
    pub by: Option<(Time, NodeName)>,
    /// The object as it was; `None`: the path did not exist.
    pub object: Option<Object>,
    /// It is the current version.
    pub is_current: bool,
}

fn history(store: &dyn MetaStore) -> Result<&dyn History, StoreError> {
    store.history().ok_or_else(|| StoreError::Denied("this store keeps no history".to_owned()))
}

/// Returns all versions of an object under any path, the latest first.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub fn versions(store: &dyn MetaStore, id: ObjectId) -> Result<Vec<PathVersion>, StoreError> {
    Ok(history(store)?.versions(id)?.into_iter().map(PathVersion::from).collect())
}

impl From<Version> for PathVersion {
    fn from(Version { stored, since, until, by }: Version) -> Self {
        Self { since, by, object: Some(stored.object), is_current: until.is_none() }
    }
}

/// Returns all versions of the objects that had a name, the latest first: a program that saves a file by replacing it makes a
/// new version of the path as well.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub fn versions_of_name(store: &dyn MetaStore, name: &LinkName) -> Result<Vec<PathVersion>, StoreError> {
    let history = history(store)?;
    let mut named: Vec<_> =
        history.past_of_name(name)?.into_iter().map(|past| (past.link, Some(past.until))).collect();
    named.extend(history.link_at(name, Seq(i64::MAX as u64))?.map(|link| (link, None)));
    let begun: Vec<Seq> = named.iter().map(|(link, _)| link.set).collect();
    let mut all = Vec::new();
    for (link, until) in named {
        for version in history.versions(link.child)? {
            let over = version.until.is_some_and(|end| end <= link.set)
                || until.is_some_and(|until| version.since >= until);
            if over {
                continue;
            }
            let is_current = until.is_none() && version.until.is_none();
            let mut version = PathVersion { is_current, ..version.into() };
            if link.set > version.since {
                version.since = link.set;
                version.by = author(store, link.set)?;
            }
            all.push(version);
        }
        if let Some(until) = until.filter(|until| !begun.contains(until)) {
            let by = author(store, until)?;
            all.push(PathVersion { since: until, by, object: None, is_current: false });
        }
    }
    all.sort_by_key(|version| std::cmp::Reverse(version.since));
    Ok(all)
}

fn author(store: &dyn MetaStore, seq: Seq) -> Result<Option<(Time, NodeName)>, StoreError> {
    match store.log_since(Seq(seq.0.saturating_sub(1)), 1) {
        Ok(entries) => Ok(entries.into_iter().next().map(|entry| (entry.at, entry.node))),
        Err(StoreError::Forgotten(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
