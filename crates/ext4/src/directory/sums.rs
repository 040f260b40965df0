//! Checksums of directory blocks.
//!
//! With metadata checksums, the type of a block is evident from its content: a leaf ends with a tail that looks like an entry,
//! which leaves no room for an entry that spans the rest of the block, as index nodes have.

use super::entries::{self, TAIL_BYTES};
use super::node::Node;
use crate::checksum::crc32c;
use crate::error::Corruption;

/// Type of a block, inferred from its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// The entry `..` spans the rest of the block.
    Root,
    /// One free entry spans the block. Without checksums, a leaf without names can look like this.
    Node,
    Leaf,
}

impl Shape {
    pub(super) fn of(block: &[u8]) -> Self {
        match entries::head(block, 0) {
            Some((0, length)) if length == block.len() => Self::Node,
            Some((_, 12))
                if entries::head(block, 12).is_some_and(|(_, length)| length == block.len() - 12) =>
            {
                Self::Root
            }
            _ => Self::Leaf,
        }
    }
}

fn index_sum(seed: u32, block: &[u8], (used, tail): (usize, usize)) -> u32 {
    crc32c(crc32c(crc32c(seed, &block[..used]), &block[tail..tail + 4]), &[0; 4])
}

fn compare(what: &str, stored: u32, computed: u32) -> Result<(), Corruption> {
    if stored == computed {
        return Ok(());
    }
    Err(Corruption::new(format!("{what}: checksum {stored:#010x}, computed {computed:#010x}")))
}

pub(super) fn verify_index(seed: u32, node: &Node<'_>, block: &[u8]) -> Result<(), Corruption> {
    let Some(tail) = node.tail(block) else {
        return Err(Corruption::new("directory index: no room for its checksum"));
    };
    let stored = &block[tail.1 + 4..tail.1 + 8];
    let stored = u32::from_le_bytes(stored.try_into().expect("four bytes"));
    compare("directory index", stored, index_sum(seed, block, tail))
}

/// Verifies a leaf. A leaf without a tail has no checksum: checksums were enabled after it was written.
pub(super) fn verify_leaf(seed: u32, block: &[u8]) -> Result<(), Corruption> {
    match entries::tail_sum(block) {
        Some(stored) => compare("directory block", stored, crc32c(seed, &block[..block.len() - TAIL_BYTES])),
        None => Ok(()),
    }
}

/// Fills in the checksum of a directory block; `seed` is that of the directory's inode.
pub(crate) fn fill_sum(seed: u32, block: &mut [u8]) {
    let shape = Shape::of(block);
    if shape != Shape::Leaf {
        let tail = Node::parse(block, shape == Shape::Root).ok().and_then(|node| node.tail(block));
        if let Some(tail) = tail {
            let sum = index_sum(seed, block, tail);
            block[tail.1 + 4..tail.1 + 8].copy_from_slice(&sum.to_le_bytes());
        }
    } else if entries::tail_sum(block).is_some() {
        let end = block.len();
        let sum = crc32c(seed, &block[..end - TAIL_BYTES]);
        block[end - 4..].copy_from_slice(&sum.to_le_bytes());
    }
}
