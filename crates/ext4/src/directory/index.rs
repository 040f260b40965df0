//! The hash tree of a directory.

use super::Directory;
use super::hash::{Algorithm, hash};
use super::node::{self, Node};
use crate::error::Result;
use crate::layout::Incompat;
use crate::superblock::Geometry;

/// Levels of nodes below the root that a tree may have.
pub(super) fn deepest(geometry: &Geometry) -> u8 {
    if geometry.incompat.contains(Incompat::LARGE_DIR) { 2 } else { 1 }
}

/// The leaves in which a name may be; `None` where names are hashed in a way not known here, and all leaves may.
pub(super) fn leaves<'a>(
    directory: &'a Directory<'a>,
    name: &[u8],
) -> Result<Option<impl Iterator<Item = Result<u32>> + 'a>> {
    let wrong = |what: &str| directory.wrong(format!("directory index: {what}"));
    let Some((_, root)) = directory.block(0)? else { return Err(wrong("its root is a hole")) };
    let info = node::info(&root)?;
    let (algorithm, unsigned) = match info.hash_version {
        version @ 0..=2 => (version, directory.geometry.unsigned_hash),
        version @ 3..=5 => (version - 3, true),
        _ => return Ok(None),
    };
    let algorithm = match algorithm {
        0 => Algorithm::Legacy,
        1 => Algorithm::HalfMd4,
        _ => Algorithm::Tea,
    };
    if info.indirect_levels > deepest(directory.geometry) {
        return Err(wrong("it is too deep"));
    }
    let wanted = hash(algorithm, unsigned, directory.geometry.hash_seed, name);
    // The way down: block, number of entries and place, for each level.
    let mut path: Vec<(u32, usize)> = Vec::with_capacity(4);
    let mut logical = 0;
    for _ in 0..=info.indirect_levels {
        let Some((_, block)) = directory.block(logical)? else { return Err(wrong("a node is a hole")) };
        let node = Node::parse(&block, logical == 0)?;
        let place = node.find(wanted);
        path.push((logical, place));
        logical = node.block(place);
        if logical == 0 {
            return Err(wrong("a node refers to the root"));
        }
    }
    let mut next = Some(logical);
    // A tree that is whole leads to each leaf once.
    let mut left = directory.length()?;
    Ok(Some(std::iter::from_fn(move || {
        let now = next.take()?;
        let Some(rest) = left.checked_sub(1) else {
            return Some(Err(wrong("it leads to more leaves than there are")));
        };
        left = rest;
        match following(directory, &mut path, wanted) {
            Ok(leaf) => next = leaf,
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(now))
    })))
}

/// The leaf after the one that `path` leads to, if names of this hash go on there.
fn following(directory: &Directory<'_>, path: &mut [(u32, usize)], wanted: u32) -> Result<Option<u32>> {
    let wrong = |what: &str| directory.wrong(format!("directory index: {what}"));
    let mut level = path.len();
    let mut logical = loop {
        let Some(above) = level.checked_sub(1) else { return Ok(None) };
        level = above;
        let (logical, place) = path[level];
        let Some((_, block)) = directory.block(logical)? else { return Err(wrong("a node is a hole")) };
        let node = Node::parse(&block, logical == 0)?;
        if place + 1 < node.count {
            if node.hash(place + 1) & !1 != wanted {
                return Ok(None);
            }
            path[level].1 = place + 1;
            break node.block(place + 1);
        }
    };
    for step in &mut path[level + 1..] {
        *step = (logical, 0);
        let Some((_, block)) = directory.block(logical)? else { return Err(wrong("a node is a hole")) };
        logical = Node::parse(&block, logical == 0)?.block(0);
    }
    if logical == 0 {
        return Err(wrong("a node refers to the root"));
    }
    Ok(Some(logical))
}
