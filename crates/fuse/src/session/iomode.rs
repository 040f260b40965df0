//! I/O modes of open inodes, as in the kernel's fs/fuse/iomode.c. The kernel refuses (EIO) an open that mixes passthrough with
//! cached I/O on one inode, and all passthrough opens must use one backing file. This table enforces the rule, so that file
//! systems need not know it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use shunt_fuse_abi::{OpenOut, OpenOutFlags};
use shunt_sharded::Sharded;

use crate::api::{Opened, Serve};
use crate::id::NodeId;
use crate::passthrough::Backing;

const APPEND: u32 = libc::O_APPEND as u32;
const DIRECT: u32 = libc::O_DIRECT as u32;
const ACCESS: u32 = libc::O_ACCMODE as u32;

/// Reports whether `fcntl(F_SETFL)` can make the kernel's backing file disagree with the flags of the open file.
///
/// The kernel opens a backing file with the flags that the caller's file has at that moment, and propagates later changes neither
/// to the backing file nor to the server. O_APPEND and O_DIRECT that are set later are passed with each call (O_DIRECT as a hint
/// that is not followed); those of the backing file itself are permanent: a write at an offset goes to the end, and an unaligned
/// one fails.
fn outlasts_the_caller(flags: u32) -> bool {
    flags & DIRECT != 0 || flags & APPEND != 0 && flags & ACCESS != libc::O_RDONLY as u32
}

#[derive(Debug)]
struct NodeMode {
    opens: u32,
    /// No open uses the kernel's page cache.
    all_direct: bool,
    /// Set while the node's opens are passed through.
    backing: Option<Backing>,
}

/// The I/O mode of each open inode.
///
/// A node's mode ends with its last RELEASE. The kernel's own record ended a little earlier, so every open that the table allows,
/// the kernel allows too.
#[derive(Debug, Default)]
pub(crate) struct Modes {
    /// The flags of an open are assumed not to change.
    trusts_open_flags: bool,
    shards: Sharded<Mutex<HashMap<NodeId, NodeMode>>>,
    uncached: Mutex<HashSet<NodeId>>,
    uncached_count: AtomicUsize,
}

impl Modes {
    /// Makes an empty table. `trusts_open_flags`: see [`Config::trust_open_flags`](super::Config::trust_open_flags).
    pub(crate) fn new(trusts_open_flags: bool) -> Self {
        Self { trusts_open_flags, ..Self::default() }
    }

    /// Counts an open and selects its mode. `open_flags` are the `O_*` flags of the caller. `may_skip_flush`: FLUSH may be suppressed
    /// where the open allows it.
    pub(crate) fn open(
        &self,
        node: NodeId,
        opened: &Opened,
        open_flags: u32,
        may_skip_flush: bool,
    ) -> OpenOut {
        let mut flags = opened.flags;
        if !may_skip_flush {
            flags -= OpenOutFlags::NOFLUSH;
        }
        let mut shard = self.shards.by_low_bits(node.0).lock();
        let mode = shard.entry(node).or_insert_with(|| NodeMode {
            opens: 0,
            all_direct: true,
            backing: match &opened.serve {
                Serve::Passthrough(backing) => Some(backing.clone()),
                _ => None,
            },
        });
        mode.opens += 1;
        let is_direct = match (&opened.serve, &mode.backing) {
            (Serve::Direct, Some(_)) => !opened.joins,
            (Serve::Direct, None) => true,
            // Like a passed-through open, it bypasses the kernel's page cache.
            (Serve::Passthrough(_), None) => mode.all_direct,
            _ => false,
        };
        mode.all_direct &= is_direct;
        if is_direct || (mode.backing.is_none() && self.is_uncached(node)) {
            flags |= OpenOutFlags::DIRECT_IO;
        }
        let mut backing_id = 0;
        if let Some(backing) = &mode.backing {
            if opened.watched || !self.trusts_open_flags && outlasts_the_caller(open_flags) {
                // Reads and writes then bypass the backing file, whose id the kernel still requires.
                flags |= OpenOutFlags::DIRECT_IO;
            }
            flags |= OpenOutFlags::PASSTHROUGH;
            // The kernel accepts no other flags together with PASSTHROUGH.
            flags &= OpenOutFlags::PASSTHROUGH
                | OpenOutFlags::DIRECT_IO
                | OpenOutFlags::PARALLEL_DIRECT_WRITES
                | OpenOutFlags::NOFLUSH;
            backing_id = backing.id() as i32;
        }
        if flags.contains(OpenOutFlags::DIRECT_IO) {
            flags -= OpenOutFlags::KEEP_CACHE;
        }
        OpenOut { fh: opened.handle.0, open_flags: flags.bits(), backing_id }
    }

    /// Counts an open that an earlier server answered.
    pub(crate) fn adopt(&self, node: NodeId, backing: Option<Backing>) {
        let mut shard = self.shards.by_low_bits(node.0).lock();
        shard.entry(node).or_insert(NodeMode { opens: 0, all_direct: false, backing }).opens += 1;
    }

    /// Counts a release. The last one returns the backing file; dropping it ends the registration by a system call, which must
    /// not be made under the lock.
    pub(crate) fn release(&self, node: NodeId) -> Option<Backing> {
        let mut shard = self.shards.by_low_bits(node.0).lock();
        let mode = shard.get_mut(&node)?;
        mode.opens -= 1;
        match mode.opens {
            0 => shard.remove(&node)?.backing,
            _ => None,
        }
    }

    /// Reports whether opens of a node are passed through, so that no page of it may stay in the mount's own page cache.
    pub(crate) fn is_passed(&self, node: NodeId) -> bool {
        let shard = self.shards.by_low_bits(node.0).lock();
        shard.get(&node).is_some_and(|mode| mode.backing.is_some())
    }

    /// Returns the number of open inodes.
    pub(crate) fn open_nodes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    pub(crate) fn set_uncached(&self, node: NodeId, on: bool) {
        let mut uncached = self.uncached.lock();
        if on {
            uncached.insert(node);
        } else {
            uncached.remove(&node);
        }
        self.uncached_count.store(uncached.len(), Ordering::Release);
    }

    /// Reports whether `set_caching` made a node uncached.
    pub(crate) fn is_uncached(&self, node: NodeId) -> bool {
        self.uncached_count.load(Ordering::Acquire) > 0 && self.uncached.lock().contains(&node)
    }

    /// Drops the caching mode of a node that the kernel forgot.
    pub(crate) fn forget(&self, node: NodeId) {
        if self.uncached_count.load(Ordering::Acquire) > 0 {
            self.set_uncached(node, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::FileHandle;

    const NODE: NodeId = NodeId(7);

    fn flags(out: OpenOut) -> OpenOutFlags {
        OpenOutFlags::from_bits_retain(out.open_flags)
    }

    #[test]
    fn an_uncached_node_is_opened_directly_and_back() {
        let modes = Modes::default();
        modes.set_uncached(NODE, true);
        let opened = Opened::cached(FileHandle(1)).keep_cache();
        assert_eq!(flags(modes.open(NODE, &opened, 0, true)), OpenOutFlags::DIRECT_IO);
        modes.set_uncached(NODE, false);
        assert_eq!(flags(modes.open(NODE, &opened, 0, true)), OpenOutFlags::KEEP_CACHE);
    }

    #[test]
    fn a_direct_open_is_passed_through_where_it_joins_those_that_are() {
        let joining = Opened::direct(FileHandle(1)).joining();
        let modes = Modes::default();
        assert_eq!(flags(modes.open(NODE, &joining, 0, true)), OpenOutFlags::DIRECT_IO);
        let modes = Modes::default();
        modes.adopt(NODE, Some(Backing::unregistered(NODE)));
        assert_eq!(flags(modes.open(NODE, &joining, 0, true)), OpenOutFlags::PASSTHROUGH);
        let direct = Opened::direct(FileHandle(1));
        let both = OpenOutFlags::PASSTHROUGH | OpenOutFlags::DIRECT_IO;
        assert_eq!(flags(modes.open(NODE, &direct, 0, true)), both);
    }

    #[test]
    fn an_open_beside_direct_ones_alone_leaves_the_pages_alone() {
        let passed = || Opened::passthrough(FileHandle(1), Backing::unregistered(NODE));
        let modes = Modes::default();
        modes.open(NODE, &Opened::direct(FileHandle(1)), 0, true);
        assert_eq!(flags(modes.open(NODE, &passed(), 0, true)), OpenOutFlags::DIRECT_IO);
        modes.open(NODE, &Opened::cached(FileHandle(1)), 0, true);
        assert_eq!(flags(modes.open(NODE, &passed(), 0, true)), OpenOutFlags::empty());
        (0..4).for_each(|_| assert!(modes.release(NODE).is_none()));
        assert_eq!(flags(modes.open(NODE, &passed(), 0, true)), OpenOutFlags::PASSTHROUGH);
        assert!(modes.release(NODE).is_some());
    }

    #[test]
    fn flags_that_a_caller_can_take_away_are_not_left_to_the_backing_file() {
        let passed = || Opened::passthrough(FileHandle(1), Backing::unregistered(NODE));
        let both = OpenOutFlags::PASSTHROUGH | OpenOutFlags::DIRECT_IO;
        let cases = [
            (libc::O_RDWR, OpenOutFlags::PASSTHROUGH),
            (libc::O_RDONLY | libc::O_APPEND, OpenOutFlags::PASSTHROUGH),
            (libc::O_RDWR | libc::O_DSYNC | libc::O_NOATIME, OpenOutFlags::PASSTHROUGH),
            (libc::O_WRONLY | libc::O_APPEND, both),
            (libc::O_RDWR | libc::O_APPEND, both),
            (libc::O_RDONLY | libc::O_DIRECT, both),
        ];
        for (open_flags, served) in cases {
            let modes = Modes::default();
            assert_eq!(flags(modes.open(NODE, &passed(), open_flags as u32, true)), served, "{open_flags:o}");
            assert!(modes.is_passed(NODE));
            modes.release(NODE);
            assert!(!modes.is_passed(NODE));
            let modes = Modes::new(true);
            let trusted = flags(modes.open(NODE, &passed(), open_flags as u32, true));
            assert_eq!(trusted, OpenOutFlags::PASSTHROUGH, "{open_flags:o}");
        }
    }

    #[test]
    fn flush_stays_where_it_ends_locks() {
        let modes = Modes::default();
        let opened = Opened::cached(FileHandle(1)).no_flush();
        assert_eq!(flags(modes.open(NODE, &opened, 0, false)), OpenOutFlags::empty());
        assert_eq!(flags(modes.open(NODE, &opened, 0, true)), OpenOutFlags::NOFLUSH);
        assert_eq!(modes.open_nodes(), 1);
        modes.release(NODE);
        modes.release(NODE);
        modes.release(NODE);
        assert_eq!(modes.open_nodes(), 0);
    }
}
