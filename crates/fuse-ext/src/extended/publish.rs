//! Publishing: decides which replies are stored for the program, and when they expire.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shunt_fuse::{Expiry, FileSystem, Name, NodeId};
use shunt_fuse_abi::{Attr, EntryOut};

use super::{AccessTimes, Extended};
use crate::Version;
use crate::builtin::{AttrExpiry, ChangeCount, Stored, Tables};

/// Age of an access time after which a read may update it by the rule of relatime: a little less than a day.
const RELATIME_UPDATE_INTERVAL: Duration = Duration::from_secs(23 * 3600);

/// Returns how long reads will not update the access time by the rule of relatime (`mount(8)`): while it is later than both other
/// times, for a day.
fn atime_settled_for(attr: &Attr, now: Duration) -> Option<Duration> {
    let time = |seconds: u64, nanoseconds: u32| Duration::new(seconds, nanoseconds.min(999_999_999));
    let atime = time(attr.atime, attr.atimensec);
    if atime <= time(attr.mtime, attr.mtimensec) || atime <= time(attr.ctime, attr.ctimensec) {
        return None;
    }
    atime.checked_add(RELATIME_UPDATE_INTERVAL)?.checked_sub(now).filter(|left| !left.is_zero())
}

impl<F: FileSystem> Extended<F> {
    /// Reports whether a reply with this cache time is stored until it changes.
    fn is_lasting(&self, expiry: Expiry) -> bool {
        expiry != Expiry::NEVER_CACHED && expiry >= self.extension.lasting
    }

    /// Returns the expiry of attributes with the cache time `expiry`; `None`: do not store them.
    fn until(&self, node: NodeId, attr: &Attr, expiry: Expiry) -> Option<AttrExpiry> {
        if expiry == Expiry::NEVER_CACHED || self.shared.opens.written_past(node) {
            return None;
        }
        let until =
            if self.is_lasting(expiry) { AttrExpiry::CHANGED } else { AttrExpiry::after(expiry.time()) };
        if self.extension.access_times == AccessTimes::Unmoved {
            return Some(until);
        }
        if !self.shared.open_cache.contains(node) && !self.shared.opens.passed_through(node) {
            return Some(until);
        }
        // Reads bypass the daemon and change the access time.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let left =
            atime_settled_for(attr, now).filter(|_| self.extension.access_times == AccessTimes::Loosely)?;
        Some(until.min(AttrExpiry::after(left)))
    }

    /// Stores attributes whose version and tables were read before they were queried.
    pub(super) fn known(
        &self,
        since: Option<(Version, Arc<Tables>)>,
        node: NodeId,
        stored: Stored,
        expiry: Expiry,
    ) {
        let Some((since, tables)) = since else { return };
        if let Some(until) = self.until(node, &stored.attr, expiry) {
            tables.store_attributes(node, since, stored, until);
        }
    }

    /// Stores the result of a lookup.
    pub(super) fn found(
        &self,
        parent: NodeId,
        name: Name<'_>,
        since: &LookupVersions,
        entry: &shunt_fuse::Entry,
    ) {
        let name = name.as_bytes();
        // Lookups of `.` and `..` only resolve file handles, and are no entries of the directory.
        if matches!(name, b"." | b"..") {
            return;
        }
        if entry.node == NodeId(0) {
            if self.is_lasting(entry.entry_expiry) {
                since.tables.store_absent(parent, name, since.name);
            }
            return;
        }
        let stored = Stored::from(&entry.attributes);
        if let Some(until) = self.until(entry.node, &stored.attr, entry.attributes_expiry) {
            since.tables.store_found(entry.node, since.change_count, stored, until);
        }
        if self.is_lasting(entry.entry_expiry) {
            since.tables.store_name(parent, name, since.name, entry.node, entry.generation);
        }
    }

    /// Stores an entry of a listing, and adjusts its cache time in the kernel.
    pub(super) fn listed(
        &self,
        tables: Option<&(ChangeCount, Arc<Tables>)>,
        parent: NodeId,
        name: &[u8],
        entry: &mut EntryOut,
    ) {
        let node = NodeId(entry.nodeid);
        if node == NodeId(0) {
            return;
        }
        let expiry = |seconds, nanoseconds| Expiry::after(Duration::new(seconds, nanoseconds));
        let named = expiry(entry.entry_valid, entry.entry_valid_nsec);
        let known = expiry(entry.attr_valid, entry.attr_valid_nsec);
        if let Some((since, tables)) = tables {
            if let Some(until) = self.until(node, &entry.attr, known) {
                tables.store_found(node, *since, entry.attr.into(), until);
            }
            if self.is_lasting(named) && !matches!(name, b"." | b"..") {
                tables.store_listed(parent, name, *since, node, entry.generation);
            }
        }
        if self.extension.no_kernel_cache {
            (entry.entry_valid, entry.entry_valid_nsec) = (0, 0);
            (entry.attr_valid, entry.attr_valid_nsec) = (0, 0);
        }
    }
}

/// The versions before a lookup.
pub(super) struct LookupVersions {
    tables: Arc<Tables>,
    name: Version,
    change_count: ChangeCount,
}

impl LookupVersions {
    pub(super) fn now(tables: Arc<Tables>, parent: NodeId, name: Name<'_>) -> Self {
        Self {
            name: tables.name_version(parent, name.as_bytes()),
            change_count: tables.change_count(),
            tables,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_time_is_settled_for_a_day_once_it_is_later_than_the_others() {
        let attr = Attr { atime: 1000, mtime: 900, ctime: 900, ..Attr::default() };
        let now = Duration::from_secs(1000);
        assert_eq!(atime_settled_for(&attr, now), Some(RELATIME_UPDATE_INTERVAL));
        assert_eq!(atime_settled_for(&attr, now + RELATIME_UPDATE_INTERVAL), None);
        assert_eq!(atime_settled_for(&Attr { mtime: 1000, ..attr }, now), None);
        assert_eq!(atime_settled_for(&Attr { ctime: 1001, ..attr }, now), None);
        assert!(atime_settled_for(&Attr { atimensec: 1, mtime: 1000, ..attr }, now).is_some());
        // A time before 1970 is a large unsigned number.
        assert_eq!(atime_settled_for(&Attr { atime: u64::MAX, ..attr }, now), None);
    }
}
