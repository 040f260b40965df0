//! Traversal of the directory index (HTree).

use super::hash::{Algorithm, hash, hashes};
use super::node::{self, Node};
use super::source::Source;
use crate::error::Result;
use crate::layout::Incompat;
use crate::superblock::Geometry;

/// Hash function of a directory: algorithm, signedness and seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hasher {
    algorithm: Algorithm,
    unsigned: bool,
    seed: [u32; 4],
}

/// Hash version for tests: names with the same first byte collide.
#[cfg(test)]
pub(super) const COLLIDING: u8 = 0xee;

impl Hasher {
    /// Creates a hasher by the version in the root of an index; `None` for unknown versions.
    pub(super) fn new(version: u8, geometry: &Geometry) -> Option<Self> {
        let (version, unsigned) = match version {
            0..=2 => (version, geometry.unsigned_hash),
            3..=5 => (version - 3, true),
            #[cfg(test)]
            COLLIDING => return Some(Self { algorithm: Algorithm::FirstByte, unsigned: true, seed: [0; 4] }),
            _ => return None,
        };
        let algorithm = match version {
            0 => Algorithm::Legacy,
            1 => Algorithm::HalfMd4,
            _ => Algorithm::Tea,
        };
        Some(Self { algorithm, unsigned, seed: geometry.hash_seed })
    }

    pub(super) fn hash(&self, name: &[u8]) -> u32 {
        hash(self.algorithm, self.unsigned, self.seed, name)
    }

    pub(super) fn hashes(&self, name: &[u8]) -> [u32; 2] {
        hashes(self.algorithm, self.unsigned, self.seed, name)
    }
}

/// Maximum number of node levels below the root.
pub(super) fn deepest(geometry: &Geometry) -> u8 {
    if geometry.incompat.contains(Incompat::LARGE_DIR) { 2 } else { 1 }
}

/// One level of a path from the root to a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Block of the node.
    pub(super) logical: u32,
    /// Position of the entry that the path follows.
    pub(super) slot: usize,
    /// The node has no room for another entry.
    pub(super) is_full: bool,
    /// Lowest hash below that entry.
    pub(super) from: u32,
    /// Highest hash below that entry; names with this hash may continue in the next leaf.
    pub(super) until: u32,
}

fn block(directory: &impl Source, logical: u32) -> Result<std::sync::Arc<[u8]>> {
    match directory.block(logical)? {
        Some((_, block)) => Ok(block),
        None => Err(directory.wrong("directory index: a node block is a hole")),
    }
}

/// Returns the hasher of a directory. `None` means an unknown version: a name may be in any block.
pub(super) fn hasher(directory: &impl Source) -> Result<Option<Hasher>> {
    let root = block(directory, 0)?;
    Ok(Hasher::new(node::info(&root)?.hash_version, directory.geometry()))
}

/// Returns the path to the first leaf that may contain names with this hash, and the leaf.
pub(super) fn descend(directory: &impl Source, hash: u32) -> Result<(Vec<Step>, u32)> {
    let mut path = Vec::with_capacity(3);
    let (mut logical, mut from, mut until) = (0, 0, u32::MAX);
    let mut levels = 0;
    loop {
        let bytes = block(directory, logical)?;
        if logical == 0 {
            levels = node::info(&bytes)?.indirect_levels;
            if levels > deepest(directory.geometry()) {
                return Err(directory.wrong("directory index: too many levels"));
            }
        }
        let node = Node::parse(&bytes, logical == 0)?;
        let slot = node.find(hash);
        if slot > 0 {
            from = node.hash(slot);
        }
        if slot + 1 < node.count {
            until = node.hash(slot + 1);
        }
        path.push(Step { logical, slot, is_full: node.is_full(), from, until });
        logical = node.block(slot);
        if logical == 0 {
            return Err(directory.wrong("directory index: a node references the root"));
        }
        if path.len() > levels.into() {
            return Ok((path, logical));
        }
    }
}

/// Iterates over the leaves that may contain names with this hash.
pub(super) fn leaves<'a>(
    directory: &'a impl Source,
    hash: u32,
) -> Result<impl Iterator<Item = Result<u32>> + 'a> {
    let (mut path, first) = descend(directory, hash)?;
    let mut next = Some(first);
    // A valid tree references each leaf once.
    let mut left = directory.length()?;
    Ok(std::iter::from_fn(move || {
        let now = next.take()?;
        let Some(rest) = left.checked_sub(1) else {
            return Some(Err(
                directory.wrong("directory index: more leaves are referenced than the directory has blocks")
            ));
        };
        left = rest;
        match following(directory, &mut path, hash) {
            Ok(leaf) => next = leaf,
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(now))
    }))
}

/// Returns the leaf after the one that `path` leads to, if names with this hash continue there.
fn following(directory: &impl Source, path: &mut [Step], hash: u32) -> Result<Option<u32>> {
    let mut level = path.len();
    let mut logical = loop {
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        level = above;
        let Step { logical, slot, .. } = path[level];
        let bytes = block(directory, logical)?;
        let node = Node::parse(&bytes, logical == 0)?;
        if slot + 1 < node.count {
            if node.hash(slot + 1) & !1 != hash {
                return Ok(None);
            }
            path[level].slot = slot + 1;
            break node.block(slot + 1);
        }
    };
    for step in &mut path[level + 1..] {
        (step.logical, step.slot) = (logical, 0);
        logical = Node::parse(&block(directory, logical)?, logical == 0)?.block(0);
    }
    if logical == 0 {
        return Err(directory.wrong("directory index: a node references the root"));
    }
    Ok(Some(logical))
}
