//! The mock kernel's inode cache: the lookup count of each inode, and the mode in which it is open. It enforces the kernel's
//! rules: an inode keeps its type and generation, and is open in one I/O mode at a time.

use std::collections::HashMap;

use shunt_fuse_abi::{Attr, EntryOut, OpenOut, OpenOutFlags};

/// An inode that the kernel holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedInode {
    /// Number of lookups not yet forgotten.
    pub lookups: u64,
    /// Generation in its first lookup.
    pub generation: u64,
    /// Type bits of its mode; 0 where they are not known yet.
    pub kind: u32,
    /// Number of cached opens.
    pub cached: u32,
    /// Number of passed-through opens.
    pub passed: u32,
    /// The backing file of the passed-through opens.
    pub backing: i32,
}

/// All inodes that the kernel holds, except the root.
#[derive(Debug, Default)]
pub struct NodeCache {
    nodes: HashMap<u64, CachedInode>,
}

const ROOT: u64 = 1;
const S_IFMT: u32 = 0o170_000;

/// Flags that are allowed together with PASSTHROUGH.
const ALLOWED_WITH_PASSTHROUGH: OpenOutFlags = OpenOutFlags::PASSTHROUGH
    .union(OpenOutFlags::DIRECT_IO)
    .union(OpenOutFlags::PARALLEL_DIRECT_WRITES)
    .union(OpenOutFlags::NOFLUSH);

/// Returns why the kernel would refuse attributes (with EIO): an invalid type, or a size above 2^63 - 1.
pub(crate) fn attr_fault(attr: &Attr) -> Option<String> {
    let known = matches!(
        attr.mode & S_IFMT,
        0o010_000 | 0o020_000 | 0o040_000 | 0o060_000 | 0o100_000 | 0o120_000 | 0o140_000
    );
    if !known {
        return Some(format!("mode {:o} has no file type", attr.mode));
    }
    if i64::try_from(attr.size).is_err() {
        return Some(format!("size {} exceeds the maximum", attr.size));
    }
    let nanoseconds = [attr.atimensec, attr.mtimensec, attr.ctimensec];
    nanoseconds
        .iter()
        .any(|&n| n > 999_999_999)
        .then(|| format!("nanoseconds {nanoseconds:?} are out of range"))
}

impl NodeCache {
    /// Counts a lookup. `made` is the requested type, where the operation makes an inode.
    ///
    /// # Errors
    /// The error in the entry; it then counts no lookup.
    pub fn introduce(&mut self, entry: &EntryOut, made: Option<u32>) -> Result<(), String> {
        let id = entry.nodeid;
        if id == 0 && made.is_none() {
            return Ok(());
        }
        if id == 0 || (id == ROOT && made.is_some()) {
            return Err(format!("invalid id {id} of a new inode"));
        }
        if entry.entry_valid_nsec > 999_999_999 || entry.attr_valid_nsec > 999_999_999 {
            return Err("nanoseconds of a validity time are out of range".into());
        }
        if let Some(fault) = attr_fault(&entry.attr) {
            return Err(fault);
        }
        let kind = entry.attr.mode & S_IFMT;
        if let Some(want) = made.filter(|&want| want != 0 && kind != want & S_IFMT) {
            return Err(format!("file type {kind:o} instead of the requested {want:o}"));
        }
        if id == ROOT {
            return if entry.generation == 0 {
                Ok(())
            } else {
                Err("the root has a generation other than 0".into())
            };
        }
        let fresh =
            CachedInode { lookups: 0, generation: entry.generation, kind, cached: 0, passed: 0, backing: 0 };
        let held = self.nodes.entry(id).or_insert(fresh);
        // The kernel marks the old inode bad: its users get errors from then on.
        if (held.generation, held.kind) != (entry.generation, kind) {
            let was = (held.generation, held.kind);
            return Err(format!(
                "node {id} has generation and type {:?}, but is cached with {was:?}",
                (entry.generation, kind)
            ));
        }
        held.lookups += 1;
        Ok(())
    }

    /// Validates the attributes of an inode that is held.
    ///
    /// # Errors
    /// The violated rule.
    pub fn refresh(&self, id: u64, attr: &Attr) -> Result<(), String> {
        if let Some(fault) = attr_fault(attr) {
            return Err(fault);
        }
        match self.nodes.get(&id) {
            Some(held) if held.kind != attr.mode & S_IFMT => Err(format!(
                "node {id} changed its file type from {:o} to {:o}",
                held.kind,
                attr.mode & S_IFMT
            )),
            _ => Ok(()),
        }
    }

    /// Counts an open, subject to the kernel's rules of I/O modes.
    ///
    /// # Errors
    /// The violated rule, for which the caller gets EIO.
    pub fn open(&mut self, id: u64, out: &OpenOut) -> Result<(), String> {
        let flags = OpenOutFlags::from_bits_retain(out.open_flags);
        let passed = flags.contains(OpenOutFlags::PASSTHROUGH);
        let Some(held) = self.nodes.get_mut(&id) else { return Ok(()) };
        if passed {
            if !ALLOWED_WITH_PASSTHROUGH.contains(flags) {
                return Err(format!(
                    "passthrough open with incompatible flags {:?}",
                    flags - ALLOWED_WITH_PASSTHROUGH
                ));
            }
            if out.backing_id <= 0 {
                return Err(format!("passthrough open with invalid backing id {}", out.backing_id));
            }
            if held.cached > 0 {
                return Err(format!("passthrough open of node {id}, which is open in cached mode"));
            }
            if held.passed > 0 && held.backing != out.backing_id {
                return Err(format!("passthrough open of node {id} with a second backing file"));
            }
            held.passed += 1;
            held.backing = out.backing_id;
        } else if held.passed > 0 {
            return Err(format!("open of node {id} without passthrough, while it is open with passthrough"));
        } else if !flags.contains(OpenOutFlags::DIRECT_IO) {
            held.cached += 1;
        }
        Ok(())
    }

    /// Counts a release.
    pub fn close(&mut self, id: u64, flags: u32) {
        let flags = OpenOutFlags::from_bits_retain(flags);
        let Some(held) = self.nodes.get_mut(&id) else { return };
        if flags.contains(OpenOutFlags::PASSTHROUGH) {
            held.passed = held.passed.saturating_sub(1);
        } else if !flags.contains(OpenOutFlags::DIRECT_IO) {
            held.cached = held.cached.saturating_sub(1);
        }
    }

    /// Evicts an inode; returns the number of lookups that the server must forget.
    pub fn evict(&mut self, id: u64) -> Option<u64> {
        self.nodes.remove(&id).map(|held| held.lookups)
    }

    /// Evicts all inodes; returns their ids and lookups.
    pub fn evict_all(&mut self) -> Vec<(u64, u64)> {
        self.nodes.drain().map(|(id, held)| (id, held.lookups)).collect()
    }

    /// Returns an inode.
    pub fn get(&self, id: u64) -> Option<&CachedInode> {
        self.nodes.get(&id)
    }

    /// Returns the number of inodes, not counting the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Reports whether only the root is held.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(nodeid: u64, generation: u64, mode: u32) -> EntryOut {
        EntryOut { nodeid, generation, attr: Attr { mode, ..Attr::default() }, ..EntryOut::default() }
    }

    fn open(flags: OpenOutFlags, backing_id: i32) -> OpenOut {
        OpenOut { fh: 0, open_flags: flags.bits(), backing_id }
    }

    #[test]
    fn lookups_add_up_and_are_forgotten_at_once() {
        let mut cache = NodeCache::default();
        for _ in 0..3 {
            cache.introduce(&entry(5, 0, 0o100_644), None).unwrap();
        }
        assert_eq!(cache.evict(5), Some(3));
        assert_eq!(cache.evict(5), None);
    }

    #[test]
    fn bad_entries_are_refused() {
        let mut cache = NodeCache::default();
        assert!(cache.introduce(&entry(0, 0, 0), None).is_ok());
        assert!(cache.introduce(&entry(0, 0, 0o100_644), Some(0o100_000)).is_err());
        assert!(cache.introduce(&entry(1, 0, 0o040_755), Some(0o040_000)).is_err());
        assert!(cache.introduce(&entry(5, 0, 0o644), None).is_err());
        assert!(cache.introduce(&entry(5, 0, 0o100_644), Some(0o040_000)).is_err());
        cache.introduce(&entry(5, 0, 0o100_644), None).unwrap();
        assert!(cache.introduce(&entry(5, 1, 0o100_644), None).is_err());
        assert!(cache.refresh(5, &entry(5, 0, 0o040_755).attr).is_err());
    }

    #[test]
    fn passthrough_and_cached_opens_do_not_mix() {
        let mut cache = NodeCache::default();
        cache.introduce(&entry(5, 0, 0o100_644), None).unwrap();
        cache.open(5, &open(OpenOutFlags::empty(), 0)).unwrap();
        assert!(cache.open(5, &open(OpenOutFlags::PASSTHROUGH, 1)).is_err());
        cache.close(5, 0);
        cache.open(5, &open(OpenOutFlags::PASSTHROUGH, 1)).unwrap();
        assert!(cache.open(5, &open(OpenOutFlags::empty(), 0)).is_err());
        assert!(cache.open(5, &open(OpenOutFlags::DIRECT_IO, 0)).is_err());
        assert!(cache.open(5, &open(OpenOutFlags::PASSTHROUGH, 2)).is_err());
        assert!(cache.open(5, &open(OpenOutFlags::PASSTHROUGH | OpenOutFlags::KEEP_CACHE, 1)).is_err());
        cache.close(5, OpenOutFlags::PASSTHROUGH.bits());
        cache.open(5, &open(OpenOutFlags::DIRECT_IO, 0)).unwrap();
        cache.open(5, &open(OpenOutFlags::PASSTHROUGH, 2)).unwrap();
    }
}
