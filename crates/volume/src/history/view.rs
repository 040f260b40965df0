//! Read-only view of past states of a volume, for the virtual directories in which a mount shows them. A state is selected by
//! time or by commit. Every call queries the store, so it fails with ENETUNREACH while offline.

use std::sync::Arc;

use rustix::io::Errno;

use super::timestamp;
use crate::id::{ObjectId, Seq};
use crate::object::{LinkName, Time, VersionedObject};
use crate::store::history::{History, seq_at};
use crate::store::{MetaStore, StoreError, system_clock};

/// Name of the virtual entry in each directory through which its past is accessed.
pub const HISTORY: &str = ".shunt-history";

/// Selects a state of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointInTime {
    /// The state at a point in time.
    Moment(Time),
    /// The state after a commit.
    Commit(Seq),
}

impl PointInTime {
    /// Parses the part after `@`: a [timestamp], or `#` and the number of a commit.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        match text.strip_prefix('#') {
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().map(|seq| Self::Commit(Seq(seq)))
            }
            Some(_) => None,
            None => timestamp::parse(text).map(Self::Moment),
        }
    }

    /// Splits a name of the form `NAME@WHEN`. `@WHEN` alone stands for the directory in which it is looked up.
    pub fn split(name: &[u8]) -> Option<(&[u8], Self)> {
        let place = name.iter().rposition(|byte| *byte == b'@')?;
        Some((&name[..place], Self::parse(&name[place + 1..])?))
    }
}

/// The view of a volume's history.
#[derive(Clone)]
pub struct View(Arc<dyn MetaStore>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// Maps an error to an errno; ENETUNREACH while the store is unreachable.
pub fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::Unreachable(_) => Errno::NETUNREACH,
        StoreError::Denied(_) => Errno::ACCESS,
        // Older than the log reaches back.
        StoreError::Forgotten(_) => Errno::NOENT,
        error => {
            tracing::error!("cannot read the history of the volume: {error}");
            Errno::IO
        }
    }
}

impl View {
    /// Creates a view of the history in a store.
    pub fn new(store: Arc<dyn MetaStore>) -> Self {
        Self(store)
    }

    fn query<T>(&self, ask: impl FnOnce(&dyn History) -> Result<T, StoreError>) -> Result<T, Errno> {
        ask(self.0.history().ok_or(Errno::OPNOTSUPP)?).map_err(|error| errno(&error))
    }

    /// Returns the commit after which the volume had the selected state.
    ///
    /// # Errors
    /// ENOENT for a state in the future, or one no longer retained; EACCES, EOPNOTSUPP, ENETUNREACH, EIO.
    pub fn seq(&self, when: PointInTime) -> Result<Seq, Errno> {
        let seq = match when {
            // Another commit may still precede a time in the future.
            PointInTime::Moment(time) if time > system_clock()() => return Err(Errno::NOENT),
            PointInTime::Moment(time) => seq_at(&*self.0, time).map_err(|error| errno(&error))?,
            PointInTime::Commit(seq) if seq > self.0.head().map_err(|error| errno(&error))? => {
                return Err(Errno::NOENT);
            }
            PointInTime::Commit(seq) => seq,
        };
        if seq < self.query(|history| history.complete_since())? { Err(Errno::NOENT) } else { Ok(seq) }
    }

    /// Returns an object as of a commit.
    ///
    /// # Errors
    /// ENOENT, EACCES, EOPNOTSUPP, ENETUNREACH, EIO.
    pub fn object(&self, id: ObjectId, at: Seq) -> Result<VersionedObject, Errno> {
        self.query(|history| history.object_at(id, at))?.ok_or(Errno::NOENT)
    }

    /// Returns the object that a name referred to as of a commit.
    ///
    /// # Errors
    /// ENOENT, EACCES, EOPNOTSUPP, ENETUNREACH, EIO.
    pub fn child(&self, parent: ObjectId, name: &[u8], at: Seq) -> Result<VersionedObject, Errno> {
        let name = LinkName { parent, name: name.to_vec() };
        let link = self.query(|history| history.link_at(&name, at))?.ok_or(Errno::NOENT)?;
        self.object(link.child, at)
    }

    /// Lists at most `limit` entries of a directory as of a commit, in order of names, after `after`; without objects that are
    /// no longer retained.
    ///
    /// # Errors
    /// EACCES, EOPNOTSUPP, ENETUNREACH, EIO.
    pub fn list(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, VersionedObject)>, Errno> {
        let (mut after, mut found) = (after.to_vec(), Vec::new());
        while found.len() < limit {
            let links = self.query(|history| history.links_at(parent, at, &after, limit - found.len()))?;
            let Some(last) = links.last() else { break };
            after.clone_from(&last.at.name);
            let ids: Vec<ObjectId> = links.iter().map(|link| link.child).collect();
            let objects = self.query(|history| history.objects_at(&ids, at))?;
            found.extend(
                links.into_iter().zip(objects).filter_map(|(link, object)| Some((link.at.name, object?))),
            );
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_times() {
        let moment = PointInTime::Moment(Time(1_795_176_000_000_000_000));
        for (name, expected) in [
            ("file@2026-11-20T12:00Z", Some(("file", moment))),
            ("a@b@2026-11-20T12:00:00Z", Some(("a@b", moment))),
            ("@2026-11-20T12:00Z", Some(("", moment))),
            ("file@#17", Some(("file", PointInTime::Commit(Seq(17))))),
            ("file@#", None),
            ("file@#+1", None),
            ("me@example.org", None),
            ("file@", None),
            ("file", None),
        ] {
            let expected = expected.map(|(name, when)| (name.as_bytes(), when));
            assert_eq!(PointInTime::split(name.as_bytes()), expected, "{name}");
        }
        assert_eq!(PointInTime::split(b"\xff@2026-11-20T12:00Z"), Some((&b"\xff"[..], moment)));
        assert_eq!(PointInTime::split(b"file@\xff"), None);
    }
}
