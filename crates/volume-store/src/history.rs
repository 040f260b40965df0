//! Past versions of objects and names.
//!
//! Each commit keeps what it supersedes, together with its own number. So the volume can be read as of any commit that is
//! [retained](Retention).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{LinkName, StoredLink, Time, VersionedObject};

use crate::{MetaStore, StoreError};

/// Maximum number of versions of one object in an answer.
pub const MAX_VERSIONS: usize = 1000;

/// A name that was removed or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastLink {
    /// The link as it was.
    pub link: StoredLink,
    /// The commit that ended it.
    pub until: Seq,
}

/// A version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The object in this version.
    pub stored: VersionedObject,
    /// The commit that created this version; [`VersionedObject::since`].
    pub since: Seq,
    /// The commit that superseded it; `None`: current.
    pub until: Option<Seq>,
    /// Time and author of the commit that created it, unless that was truncated from the log.
    pub by: Option<(Time, NodeName)>,
}

/// Retention of history. Both limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Versions superseded longer ago are deleted. `None`: kept indefinitely.
    pub age: Option<Duration>,
    /// Maximum number of versions of an object besides the current one. `None`: all.
    pub versions: Option<u32>,
}

impl Default for Retention {
    /// Thirty days.
    fn default() -> Self {
        Self { age: Some(Duration::from_secs(30 * 24 * 3600)), versions: None }
    }
}

/// Queries of past versions. A query as of a commit before [`complete_since`](Self::complete_since) returns the versions that are
/// still stored.
pub trait History: Send + Sync {
    /// Returns the earliest commit as of which the history is complete.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn complete_since(&self) -> Result<Seq, StoreError>;

    /// Returns the result of [`seq_at`], if the engine can compute it in one step.
    fn seq_at(&self, _time: Time) -> Option<Result<Seq, StoreError>> {
        None
    }

    /// Returns an object as of a commit; `None`: it did not exist, or that version is no longer retained.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError>;

    /// Returns several objects as of a commit, in the order of `ids`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        ids.iter().map(|id| self.object_at(*id, at)).collect()
    }

    /// Returns a name as of a commit.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError>;

    /// Returns at most `limit` names of a directory as of a commit, in their order, after the name `after`.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError>;

    /// Returns the retained versions of an object, the latest first, at most [`MAX_VERSIONS`].
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError>;

    /// Returns what a name referred to before, the latest first, at most [`MAX_VERSIONS`].
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError>;

    /// Returns names that objects had and lost, in no order, at most [`MAX_VERSIONS`] of each.
    ///
    /// # Errors
    /// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError>;
}

/// Returns the last commit at or before a time; 0: there was none yet. Commit times never decrease.
///
/// # Errors
/// [`StoreError::Forgotten`] for a time before the log begins; any other [`StoreError`] of the engine.
pub fn seq_at(store: &dyn MetaStore, time: Time) -> Result<Seq, StoreError> {
    if let Some(known) = store.history().and_then(|history| history.seq_at(time)) {
        return known;
    }
    let (mut below, mut above) = (Seq(0), Seq(store.head()?.0 + 1));
    let mut truncated = Seq(0);
    while above.0 - below.0 > 1 {
        let middle = Seq(below.0 + (above.0 - below.0) / 2);
        let at = match store.log_since(Seq(middle.0 - 1), 1) {
            Ok(entries) => entries.first().map(|entry| entry.at),
            // Older than the log reaches back.
            Err(StoreError::Forgotten(_)) => {
                truncated = truncated.max(middle);
                None
            }
            Err(error) => return Err(error),
        };
        if at.is_none_or(|at| at <= time) { below = middle } else { above = middle }
    }
    if below > Seq(0) && below == truncated { Err(StoreError::Forgotten(below)) } else { Ok(below) }
}
