//! The files and bytes that each user holds, counted as the tree changes, and the limits on them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rusqlite::Connection;
use rusqlite::OptionalExtension as _;
use rusqlite::params;

use super::inode::{Inode, number};
use crate::quota::{ATTRIBUTE, Limits, Usage};
use crate::replica::db::inode::ROOT;

#[derive(Default)]
pub(crate) struct UserUsage {
    /// Linked objects. Only these counts are stored: no unlinked object is in use after a restart.
    pub(crate) named: Usage,
    pub(crate) unlinked: Usage,
}

/// Current usage and limits.
#[derive(Default)]
pub(crate) struct UsageTracker {
    pub(crate) by_user: HashMap<u32, UserUsage>,
    pub(crate) all: Usage,
    /// Users whose rows in the database are out of date.
    pub(crate) dirty_users: HashSet<u32>,
    pub(crate) limits: Limits,
    pub(crate) limited: Arc<AtomicBool>,
    pub(crate) last_recount: Option<Instant>,
}

/// The usage of a volume and its limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Quota {
    /// Usage of the whole volume.
    pub used: Usage,
    /// Usage of each user that owns anything or has its own limit, ordered by number.
    pub users: Vec<(u32, Usage)>,
    /// The limits.
    pub limits: Limits,
}

pub(crate) fn usage_of(inode: &Inode) -> Usage {
    Usage { bytes: if inode.is_regular() { inode.size } else { 0 }, objects: 1 }
}

impl Usage {
    fn plus(&mut self, other: Usage) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.objects = self.objects.saturating_add(other.objects);
    }

    fn minus(&mut self, other: Usage) {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.objects = self.objects.saturating_sub(other.objects);
    }
}

impl UsageTracker {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut usage = Self::default();
        let mut query = db.prepare("SELECT owner, bytes, objects FROM usage")?;
        let mut rows = query.query([])?;
        while let Some(row) = rows.next()? {
            let named = Usage { bytes: number(row.get(1)?), objects: number(row.get(2)?) };
            usage.all.plus(named);
            usage.by_user.insert(row.get(0)?, UserUsage { named, ..UserUsage::default() });
        }
        drop(rows);
        let query = "SELECT value FROM xattr WHERE num = ?1 AND name = ?2";
        let value: Option<Vec<u8>> =
            db.query_row(query, params![ROOT as i64, ATTRIBUTE], |row| row.get(0)).optional()?;
        usage.set_limits(value.as_deref());
        Ok(usage)
    }

    /// Sets the limits from the attribute of the root directory.
    pub(crate) fn set_limits(&mut self, value: Option<&[u8]>) {
        self.limits = value.map(Limits::parse).unwrap_or_default();
        self.limited.store(!self.limits.is_empty(), Ordering::Release);
    }

    /// Returns a flag that is set while limits exist, readable without the lock.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.limited.clone()
    }

    pub(crate) fn add(&mut self, inode: &Inode, nameless: bool) {
        self.count(inode, nameless, Usage::plus);
    }

    pub(crate) fn take(&mut self, inode: &Inode, nameless: bool) {
        self.count(inode, nameless, Usage::minus);
    }

    fn count(&mut self, inode: &Inode, nameless: bool, how: fn(&mut Usage, Usage)) {
        if inode.ino == ROOT || inode.links == 0 && !nameless {
            return;
        }
        let user = inode.owner.0;
        let counts = self.by_user.entry(user).or_default();
        if inode.links > 0 {
            how(&mut counts.named, usage_of(inode));
            self.dirty_users.insert(user);
        } else {
            how(&mut counts.unlinked, usage_of(inode));
        }
        how(&mut self.all, usage_of(inode));
    }

    pub(crate) fn of(&self, user: u32) -> Usage {
        let mut sum = Usage::default();
        if let Some(counts) = self.by_user.get(&user) {
            sum.plus(counts.named);
            sum.plus(counts.unlinked);
        }
        sum
    }

    /// Reports whether `more` would exceed a limit; with `only_user` only the user's, since the volume already counts it.
    pub(crate) fn exceeds(&self, user: u32, more: Usage, only_user: bool) -> bool {
        let passes = |used: u64, more: u64, limit: Option<u64>| {
            more > 0 && limit.is_some_and(|limit| used.saturating_add(more) > limit)
        };
        let limit = self.limits.of(user);
        let (all, own) = (self.all, self.of(user));
        passes(own.bytes, more.bytes, limit.bytes)
            || passes(own.objects, more.objects, limit.objects)
            || !only_user
                && (passes(all.bytes, more.bytes, self.limits.volume.bytes)
                    || passes(all.objects, more.objects, self.limits.volume.objects))
    }

    pub(crate) fn quota(&self) -> Quota {
        let mut users: Vec<(u32, Usage)> = self
            .by_user
            .keys()
            .chain(self.limits.users.keys())
            .map(|user| (*user, self.of(*user)))
            .filter(|(user, used)| *used != Usage::default() || self.limits.users.contains_key(user))
            .collect();
        users.sort_unstable_by_key(|(user, _)| *user);
        users.dedup();
        Quota { used: self.all, users, limits: self.limits.clone() }
    }
}

/// Computes all counts of [`UsageTracker`] from the objects.
pub(crate) const COUNT_USAGE_SQL: &str =
    "SELECT owner, sum(CASE kind WHEN 0 THEN size ELSE 0 END), count(*) FROM object
    WHERE nlink > 0 AND num <> 1 GROUP BY owner";
