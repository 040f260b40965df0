//! A volume as it was.

use std::sync::Arc;

use rustix::io::Errno;

use super::timestamp;
use crate::id::{ObjectId, Seq};
use crate::object::{LinkName, Time, VersionedObject};
use crate::store::history::{History, seq_at};
use crate::store::{MetaStore, StoreError, system_clock};

/// The entry of each directory in which its past is shown.
pub const HISTORY: &str = ".shunt-history";

/// Which state of a volume is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointInTime {
    /// The one at a moment.
    Moment(Time),
    /// The one after a commit.
    Commit(Seq),
}

impl PointInTime {
    /// What is behind an `@`: a [timestamp], or `#` and the number of a commit.
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

    /// A name of the form `NAME@WHEN`, in two. `@WHEN` alone means the directory that it is asked for in.
    pub fn split(name: &[u8]) -> Option<(&[u8], Self)> {
        let place = name.iter().rposition(|byte| *byte == b'@')?;
        Some((&name[..place], Self::parse(&name[place + 1..])?))
    }
}

/// Looks back in a volume.
#[derive(Clone)]
pub struct View(Arc<dyn MetaStore>);

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// ENETUNREACH while the store is out of reach.
pub fn errno(error: &StoreError) -> Errno {
    match error {
        StoreError::Unreachable(_) => Errno::NETUNREACH,
        StoreError::Denied(_) => Errno::ACCESS,
        // Longer ago than the log tells.
        StoreError::Forgotten(_) => Errno::NOENT,
        error => {
            tracing::error!("the past of the volume: {error}");
            Errno::IO
        }
    }
}

impl View {
    /// Of what a store keeps.
    pub fn new(store: Arc<dyn MetaStore>) -> Self {
        Self(store)
    }

    fn ask<T>(&self, ask: impl FnOnce(&dyn History) -> Result<T, StoreError>) -> Result<T, Errno> {
        ask(self.0.history().ok_or(Errno::OPNOTSUPP)?).map_err(|error| errno(&error))
    }

    /// The commit after which the volume was as is meant.
    ///
    /// # Errors
    /// ENOENT for what is to come, and for what is not kept any more; ENETUNREACH, EIO.
    pub fn seq(&self, when: PointInTime) -> Result<Seq, Errno> {
        let seq = match when {
            // What is to come may come before it.
            PointInTime::Moment(time) if time > system_clock()() => return Err(Errno::NOENT),
            PointInTime::Moment(time) => seq_at(&*self.0, time).map_err(|error| errno(&error))?,
            PointInTime::Commit(seq) if seq > self.0.head().map_err(|error| errno(&error))? => {
                return Err(Errno::NOENT);
            }
            PointInTime::Commit(seq) => seq,
        };
        if seq < self.ask(|history| history.kept_since())? { Err(Errno::NOENT) } else { Ok(seq) }
    }

    /// An object as it was.
    ///
    /// # Errors
    /// ENOENT, ENETUNREACH, EIO.
    pub fn object(&self, id: ObjectId, at: Seq) -> Result<VersionedObject, Errno> {
        self.ask(|history| history.object_at(id, at))?.ok_or(Errno::NOENT)
    }

    /// What a name led to.
    ///
    /// # Errors
    /// ENOENT, ENETUNREACH, EIO.
    pub fn child(&self, parent: ObjectId, name: &[u8], at: Seq) -> Result<VersionedObject, Errno> {
        let name = LinkName { parent, name: name.to_vec() };
        let link = self.ask(|history| history.link_at(&name, at))?.ok_or(Errno::NOENT)?;
        self.object(link.child, at)
    }

    /// What a directory held, in the order of names, after one, at most so many; what is not kept is not among them.
    ///
    /// # Errors
    /// ENETUNREACH, EIO.
    pub fn list(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        most: usize,
    ) -> Result<Vec<(Vec<u8>, VersionedObject)>, Errno> {
        let (mut after, mut found) = (after.to_vec(), Vec::new());
        while found.len() < most {
            let links = self.ask(|history| history.links_at(parent, at, &after, most - found.len()))?;
            let Some(last) = links.last() else { break };
            after.clone_from(&last.at.name);
            let ids: Vec<ObjectId> = links.iter().map(|link| link.child).collect();
            let objects = self.ask(|history| history.objects_at(&ids, at))?;
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
