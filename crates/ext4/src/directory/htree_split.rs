//! Growth of the directory index (HTree).
//!
//! Each step leaves a valid tree: it writes the new block first, then the reference to it, and last the old block without the
//! entries that moved.

use super::index::{self, Step};
use super::leaf::{self, Link};
use super::leaf_insert::insert_in;
use super::node;
use super::source::Target;
use crate::error::{Error, Result};

/// Upper bound of the splits for one insertion: a leaf is halved until the name fits, and each level of nodes splits once.
const MAX_SPLITS: usize = 64;

/// Converts a directory of one block into a tree with one leaf.
pub(super) fn make_indexed(directory: &mut impl Target) -> Result<()> {
    let Some((_, first)) = directory.block(0)? else {
        return Err(directory.wrong("the first block of the directory is a hole"));
    };
    let summed = directory.is_summed();
    let leaf = directory.append(|block, geometry| leaf::copy_names(&first, geometry, block))?;
    drop(first);
    directory.change(0, |block, geometry| {
        node::make_root(block, geometry.hash_version, leaf, summed);
        Ok(())
    })?;
    directory.set_indexed(true);
    Ok(())
}

/// Inserts a name into an indexed directory.
pub(super) fn insert(directory: &mut impl Target, link: &Link<'_>) -> Result<()> {
    let Some(hasher) = index::hasher(directory)? else {
        return Err(directory.wrong("directory index: unknown hash version"));
    };
    let hash = hasher.hash(link.name);
    for _ in 0..MAX_SPLITS {
        let (path, leaf) = index::descend(directory, hash)?;
        if insert_in(directory, leaf, link)? {
            return Ok(());
        }
        match path.last() {
            Some(step) if !step.is_full => split_leaf(directory, step, leaf, |name| hasher.hash(name))?,
            _ => split_node(directory, &path)?,
        }
    }
    Err(directory.wrong("directory index: splitting makes no room for the name"))
}

/// Moves the upper half of a leaf's names to a new leaf; `step` is its parent node, which has room for an entry.
fn split_leaf(
    directory: &mut impl Target,
    step: &Step,
    leaf: u32,
    hash: impl Fn(&[u8]) -> u32,
) -> Result<()> {
    let owner = directory.number();
    let Some((number, full)) = directory.block(leaf)? else {
        return Err(directory.wrong("directory index: a leaf block is a hole"));
    };
    let halves = leaf::split(&full, directory.geometry(), hash)
        .map_err(|corruption| corruption.inode(owner).block(number))?;
    drop(full);
    // The lowest bit marks that names of this hash start in the previous leaf.
    let begins = halves.hash | u32::from(halves.continued);
    if begins < step.from || begins > step.until {
        return Err(
            directory.wrong(format!("directory index: block {leaf} has names outside its hash range"))
        );
    }
    let new = directory.append(|block, _| {
        block.copy_from_slice(&halves.upper);
        Ok(())
    })?;
    directory
        .change(step.logical, |block, _| node::insert(block, step.logical == 0, step.slot, begins, new))?;
    directory.change(leaf, |block, _| {
        block.copy_from_slice(&halves.lower);
        Ok(())
    })
}

/// Makes room in the highest of the full nodes at the end of `path`.
fn split_node(directory: &mut impl Target, path: &[Step]) -> Result<()> {
    let summed = directory.is_summed();
    let full = path.iter().rposition(|step| !step.is_full).map_or(0, |above| above + 1);
    let Some(step) = path.get(full) else { return Err(Error::Invalid) };
    let Some((_, block)) = directory.block(step.logical)? else {
        return Err(directory.wrong("directory index: a node block is a hole"));
    };
    if full == 0 {
        if path.len() > index::deepest(directory.geometry()).into() {
            // The index has its maximum depth.
            return Err(Error::NoSpace);
        }
        let below = directory.append(|new, _| node::copy_root(&block, new, summed))?;
        drop(block);
        return directory.change(0, |root, _| node::deepen(root, below));
    }
    let above = &path[full - 1];
    let mut half = (0, 0);
    let new = directory.append(|new, _| {
        half = node::split_upper(&block, false, new, summed)?;
        Ok(())
    })?;
    drop(block);
    let (slot, hash) = half;
    directory
        .change(above.logical, |block, _| node::insert(block, above.logical == 0, above.slot, hash, new))?;
    directory.change(step.logical, |block, _| node::cut(block, false, slot))
}
