//! What a volume held before: versions of objects and names that others took the place of.
//!
//! Each change keeps what it supersedes, with the commit that did: so the volume can be read as of any commit, as long as
//! its history is [kept](Retention).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{NodeName, ObjectId, Seq};
use crate::object::{LinkName, StoredLink, Time, VersionedObject};
use crate::store::{MetaStore, StoreError};

/// Versions of one object in an answer.
pub const MAX_VERSIONS: usize = 1000;

/// A name that is no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastLink {
    /// As it was.
    pub link: StoredLink,
    /// The commit that ended it.
    pub until: Seq,
}

/// A version of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// As it is, or was.
    pub stored: VersionedObject,
    /// The commit that made it what it is; [`VersionedObject::since`].
    pub since: Seq,
    /// The commit that ended it; `None`: it is so still.
    pub until: Option<Seq>,
    /// When that commit was made and by whom, as long as the log tells.
    pub by: Option<(Time, NodeName)>,
}

/// How much of what was is kept. Both have to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// What was superseded longer ago is not. `None`: for ever.
    pub age: Option<Duration>,
    /// At most so many versions of an object before the present one. `None`: all.
    pub versions: Option<u32>,
}

impl Default for Retention {
    /// Thirty days.
    fn default() -> Self {
        Self { age: Some(Duration::from_secs(30 * 24 * 3600)), versions: None }
    }
}

/// The side of a store that looks back. What is asked as of a commit before [`kept_since`](Self::kept_since) is answered
/// as far as it is known still.
pub trait History: Send + Sync {
    /// The commit that history reaches back to.
    ///
    /// # Errors
    /// Those of the store.
    fn kept_since(&self) -> Result<Seq, StoreError>;

    /// What [`seq_at`] says, where it can be had in one step.
    fn seq_at(&self, _time: Time) -> Option<Result<Seq, StoreError>> {
        None
    }

    /// An object as of a commit; `None`: it was not there, or that version is not kept.
    ///
    /// # Errors
    /// Those of the store.
    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError>;

    /// Several, in the order asked for.
    ///
    /// # Errors
    /// Those of the store.
    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        ids.iter().map(|id| self.object_at(*id, at)).collect()
    }

    /// A name as of a commit.
    ///
    /// # Errors
    /// Those of the store.
    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError>;

    /// The names of a directory as of a commit, in their order, after one, at most so many.
    ///
    /// # Errors
    /// Those of the store.
    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        most: usize,
    ) -> Result<Vec<StoredLink>, StoreError>;

    /// The versions of an object that are kept, the latest first, at most [`MAX_VERSIONS`].
    ///
    /// # Errors
    /// Those of the store.
    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError>;

    /// What a name led to before, the latest first, at most [`MAX_VERSIONS`].
    ///
    /// # Errors
    /// Those of the store.
    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError>;

    /// Names that objects had and lost, in no order, at most [`MAX_VERSIONS`] of each.
    ///
    /// # Errors
    /// Those of the store.
    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError>;
}

impl VersionedObject {
    /// The commit that made it what it is.
    pub fn since(&self) -> Seq {
        self.field_versions.values().copied().max().unwrap_or_default().max(self.created)
    }
}

/// The last commit at a time or before it; 0: there was none yet. Times of commits only go up.
///
/// # Errors
/// [`StoreError::Forgotten`] for a time before the log begins; those of the store.
pub fn seq_at(store: &dyn MetaStore, time: Time) -> Result<Seq, StoreError> {
    if let Some(known) = store.history().and_then(|history| history.seq_at(time)) {
        return known;
    }
    let (mut below, mut above) = (Seq(0), Seq(store.head()?.0 + 1));
    let mut forgotten = Seq(0);
    while above.0 - below.0 > 1 {
        let middle = Seq(below.0 + (above.0 - below.0) / 2);
        let at = match store.log_since(Seq(middle.0 - 1), 1) {
            Ok(entries) => entries.first().map(|entry| entry.at),
            // Longer ago than the log tells.
            Err(StoreError::Forgotten(_)) => {
                forgotten = forgotten.max(middle);
                None
            }
            Err(error) => return Err(error),
        };
        if at.is_none_or(|at| at <= time) { below = middle } else { above = middle }
    }
    if below > Seq(0) && below == forgotten { Err(StoreError::Forgotten(below)) } else { Ok(below) }
}
