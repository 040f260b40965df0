//! Changes of extent trees.
//!
//! The only operation replaces the mapping of a range of the file. Nodes on the path are decoded into lists, changed, and written
//! back. An overflowing node is split, an empty one is freed, and the parent's list is updated accordingly.

use super::node::{self, MAX_DEPTH, MAX_ROOT_ENTRIES, Node};
use super::node::{Child, Entries};
use super::splice::splice;
use crate::allocate::{Allocator, Purpose, Reservation, ReservedAccess};
use crate::buffer::{BlockKind, Handle};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::inode::Inode;
use crate::map::MappedExtent;

/// Replaces the mapping of blocks `from..to` of a file by `new`, whose pieces must be within the range, in order, and below one
/// leaf. Returns the previous mapping; its blocks are not freed. The caller must save the inode.
pub(crate) fn replace(
    fs: &Filesystem,
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    range: (u64, u64),
    new: &[MappedExtent],
) -> Result<Vec<MappedExtent>> {
    let allocator = fs.allocator()?;
    let root = Node::parse(&inode.block)?;
    root.check(&fs.geometry)?;
    let (depth, entries) = (root.depth, root.entries());
    let mut edit = Edit { fs, allocator, handle, inode, spare: Vec::new(), removed: Vec::new() };
    edit.reserve(range, new.len())?;
    let after = edit.apply(&entries, depth, range, new)?;
    if after != entries {
        edit.set_root(after, depth)?;
    }
    Ok(edit.removed)
}

struct Edit<'e, 'h> {
    fs: &'e Filesystem,
    allocator: &'e Allocator,
    handle: &'e mut Handle<'h>,
    inode: &'e mut Inode,
    /// Blocks reserved for new nodes before anything is changed.
    spare: Vec<Reservation<'e>>,
    removed: Vec<MappedExtent>,
}

impl Edit<'_, '_> {
    fn read(&self, block: u64, depth: u16) -> Result<Entries> {
        let bytes = node::get(&self.fs.geometry, &self.fs.store, self.inode, block, depth)?;
        Ok(Node::parse(&bytes)?.entries())
    }

    /// Reserves blocks for the nodes that may be added on the path to `from` if a leaf gets `new` entries. Pure removal reserves
    /// none, so that files can be truncated and deleted on a full file system.
    fn reserve(&mut self, (from, to): (u64, u64), new: usize) -> Result<()> {
        // Removal adds an entry only if it splits one.
        let within = |piece: &MappedExtent| u64::from(piece.logical) < from && to < piece.end();
        let more = |entries: &Entries| match entries {
            Entries::Leaf(list) if new == 0 => usize::from(list.iter().any(within)),
            Entries::Leaf(_) => new + 1,
            Entries::Inner(_) => 1,
        };
        let root = Node::parse(&self.inode.block)?;
        let room = node::room(&self.fs.geometry);
        let mut needed = 0;
        let mut depth = root.depth;
        let mut entries = root.entries();
        // Number of full nodes in a row, from this node down to the leaf.
        let mut full = entries.len() + more(&entries) > MAX_ROOT_ENTRIES;
        let mut run = usize::from(full);
        while let Entries::Inner(children) = &entries {
            let index = children.partition_point(|child| u64::from(child.first) <= from).saturating_sub(1);
            let Some(child) = children.get(index) else { break };
            depth -= 1;
            entries = self.read(child.block, depth)?;
            full = entries.len() + more(&entries) > room;
            run = if full { run + 1 } else { 0 };
        }
        if full {
            needed += run;
        }
        let goal = self.goal();
        for _ in 0..needed {
            let spare = self.allocator.reserve(
                &self.fs.store,
                goal,
                1,
                (Purpose::Metadata, ReservedAccess::Reserved),
            )?;
            self.spare.push(spare);
        }
        Ok(())
    }

    /// Preferred location of nodes: near the inode.
    fn goal(&self) -> u64 {
        let group = (self.inode.number - 1) / self.fs.geometry.inodes_per_group;
        self.fs.geometry.group_start(group)
    }

    /// Returns the entries of a node after the change.
    fn apply(
        &mut self,
        entries: &Entries,
        depth: u16,
        (from, to): (u64, u64),
        new: &[MappedExtent],
    ) -> Result<Entries> {
        let children = match entries {
            Entries::Leaf(list) => {
                let (after, removed) = splice(list, (from, to), new);
                self.removed.extend(removed);
                return Ok(Entries::Leaf(after));
            }
            Entries::Inner(children) => children,
        };
        let mut after = Vec::with_capacity(children.len() + 1);
        for (index, child) in children.iter().enumerate() {
            // A child covers its first block up to that of the next child; the first child also covers everything before it.
            let low = if index == 0 { 0 } else { u64::from(child.first) };
            let high = children.get(index + 1).map_or(1 << 32, |next| u64::from(next.first));
            let range = (from.max(low), to.min(high));
            if range.0 >= range.1 {
                after.push(*child);
                continue;
            }
            let parts: Vec<MappedExtent> = new.iter().filter_map(|piece| piece.within(range)).collect();
            after.extend(self.apply_to(*child, depth - 1, range, &parts)?);
        }
        // If all children were freed and `new` is not empty, the first one received the new entries.
        Ok(Entries::Inner(after))
    }

    /// Changes a node; returns no child, the same child, or several.
    fn apply_to(
        &mut self,
        child: Child,
        depth: u16,
        range: (u64, u64),
        new: &[MappedExtent],
    ) -> Result<Vec<Child>> {
        let before = self.read(child.block, depth)?;
        let after = self.apply(&before, depth, range, new)?;
        if after == before {
            return Ok(vec![child]);
        }
        if after.len() == 0 {
            self.drop_node(child.block)?;
            return Ok(Vec::new());
        }
        let grows = match (&before, &after) {
            (Entries::Leaf(before), Entries::Leaf(after)) => {
                after.last().map(|piece| piece.end()) > before.last().map(|piece| piece.end())
            }
            (Entries::Inner(before), Entries::Inner(after)) => after.last() != before.last(),
            _ => false,
        };
        let mut children = Vec::new();
        for (index, part) in after.parts(node::room(&self.fs.geometry), grows).into_iter().enumerate() {
            let first = part.first();
            let block = if index == 0 {
                self.write(child.block, depth, &part)?;
                child.block
            } else {
                self.new_node(depth, &part)?
            };
            children.push(Child { first, block });
        }
        Ok(children)
    }

    fn set_root(&mut self, mut entries: Entries, mut depth: u16) -> Result<()> {
        while entries.len() > MAX_ROOT_ENTRIES {
            if depth == MAX_DEPTH {
                return Err(Error::TooLarge);
            }
            let mut children = Vec::new();
            for part in entries.parts(node::room(&self.fs.geometry), true) {
                children.push(Child { first: part.first(), block: self.new_node(depth, &part)? });
            }
            depth += 1;
            entries = Entries::Inner(children);
        }
        // Reduce the depth of a tree that has shrunk.
        while let Entries::Inner(children) = &entries {
            match children[..] {
                [] => {
                    depth = 0;
                    entries = Entries::Leaf(Vec::new());
                }
                [only] => {
                    let below = self.read(only.block, depth - 1)?;
                    if below.len() > MAX_ROOT_ENTRIES {
                        break;
                    }
                    self.drop_node(only.block)?;
                    depth -= 1;
                    entries = below;
                }
                _ => break,
            }
        }
        node::put(&mut self.inode.block, depth, MAX_ROOT_ENTRIES, &entries);
        Ok(())
    }

    fn kind(&self, depth: u16) -> BlockKind {
        BlockKind::Extents(self.inode.number, self.inode.generation, depth)
    }

    fn write(&mut self, block: u64, depth: u16, entries: &Entries) -> Result<()> {
        let geometry = &self.fs.geometry;
        let room = node::room(geometry);
        let seed = self.inode.seed(geometry);
        let verify = |bytes: &[u8]| Ok(super::verify(geometry, seed, depth, bytes)?);
        self.handle.change(block, self.kind(depth), verify, |bytes| {
            node::put(bytes, depth, room, entries);
            Ok(())
        })
    }

    fn new_node(&mut self, depth: u16, entries: &Entries) -> Result<u64> {
        let block = match self.spare.pop() {
            Some(mut spare) => {
                let block = spare.start;
                spare.take(self.handle, 1)?;
                block
            }
            None => self.allocator.take_one(self.handle, self.goal(), ReservedAccess::Reserved)?,
        };
        let room = node::room(&self.fs.geometry);
        self.handle.create(block, self.kind(depth), |bytes| node::put(bytes, depth, room, entries))?;
        self.inode.blocks += u64::from(self.fs.geometry.block_size / 512);
        Ok(block)
    }

    fn drop_node(&mut self, block: u64) -> Result<()> {
        self.allocator.free(self.handle, block, 1)?;
        self.handle.forget(block);
        let units = u64::from(self.fs.geometry.block_size / 512);
        self.inode.blocks = self.inode.blocks.saturating_sub(units);
        Ok(())
    }
}
