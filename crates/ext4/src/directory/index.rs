//! The hash tree of a directory.

use zerocopy::FromBytes;

use super::Directory;
use super::hash::{Algorithm, hash};
use crate::checksum::crc32c;
use crate::error::{Corruption, Result};
use crate::layout::{DirEntry, DxCountLimit, DxEntry, DxRootInfo, Incompat};

/// Where the information about the tree lies: behind the entries of `.` and `..`, twelve bytes each.
const INFO: usize = 24;

const ENTRY: usize = size_of::<DxEntry>();

/// The entries of an index node.
struct Node<'a> {
    /// Where they begin in the block.
    start: usize,
    entries: &'a [u8],
    count: usize,
    limit: usize,
}

impl<'a> Node<'a> {
    /// The root is the first block; all others begin with one empty directory entry.
    fn parse(block: &'a [u8], root: bool) -> std::result::Result<Self, Corruption> {
        let start = match root {
            true => INFO + usize::from(info(block)?.info_length),
            false => size_of::<DirEntry>(),
        };
        let wrong = |what: String| Err(Corruption::new(format!("directory index: {what}")));
        let Some(rest) = block.get(start..) else { return wrong("no room for entries".into()) };
        let Ok((head, _)) = DxCountLimit::read_from_prefix(rest) else {
            return wrong("no room for entries".into());
        };
        let (count, limit) = (usize::from(head.count.get()), usize::from(head.limit.get()));
        if count == 0 || count > limit || limit > rest.len() / ENTRY {
            return wrong(format!("{count} entries of {limit} in {} bytes", rest.len()));
        }
        Ok(Self { start, entries: &rest[..count * ENTRY], count, limit })
    }

    fn entry(&self, place: usize) -> DxEntry {
        DxEntry::read_from_bytes(&self.entries[place * ENTRY..][..ENTRY]).expect("eight bytes")
    }

    /// The first entry's hash is that of the count; it stands for all below the second.
    fn hash(&self, place: usize) -> u32 {
        if place == 0 { 0 } else { self.entry(place).hash.get() }
    }

    fn find(&self, hash: u32) -> usize {
        let (mut low, mut high) = (1, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.hash(middle) <= hash { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// Flags share the word with the block's number.
    fn block(&self, place: usize) -> u32 {
        self.entry(place).block.get() & 0x0fff_ffff
    }
}

fn info(block: &[u8]) -> std::result::Result<DxRootInfo, Corruption> {
    let wrong = |what: String| Err(Corruption::new(format!("directory index: {what}")));
    let Some((info, _)) = block.get(INFO..).and_then(|rest| DxRootInfo::read_from_prefix(rest).ok()) else {
        return wrong("no room for its root".into());
    };
    if info.reserved_zero.get() != 0 || usize::from(info.info_length) != size_of::<DxRootInfo>() {
        return wrong(format!("its root has {} bytes", info.info_length));
    }
    Ok(info)
}

pub(super) fn verify(
    directory: &Directory<'_>,
    logical: u32,
    block: &[u8],
) -> std::result::Result<(), Corruption> {
    let node = Node::parse(block, logical == 0)?;
    for place in 2..node.count {
        if node.hash(place) < node.hash(place - 1) {
            return Err(Corruption::new(format!("directory index: entry {place} is out of order")));
        }
    }
    if let Some(seed) = directory.inode.seed(directory.geometry) {
        // The tail: four bytes reserved, four of the sum.
        let tail = node.start + node.limit * ENTRY;
        let Some(bytes) = block.get(tail..tail + 8) else {
            return Err(Corruption::new("directory index: no room for its checksum"));
        };
        let stored = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let used = node.start + node.count * ENTRY;
        let computed = crc32c(crc32c(crc32c(seed, &block[..used]), &bytes[..4]), &[0; 4]);
        if stored != computed {
            return Err(Corruption::new(format!(
                "directory index: checksum {stored:#010x}, computed {computed:#010x}"
            )));
        }
    }
    Ok(())
}

/// The leaves in which a name may be; `None` where names are hashed in a way not known here, and all leaves may.
pub(super) fn leaves<'a>(
    directory: &'a Directory<'a>,
    name: &[u8],
) -> Result<Option<impl Iterator<Item = Result<u32>> + 'a>> {
    let wrong = |what: &str| directory.wrong(format!("directory index: {what}"));
    let Some((_, root)) = directory.block(0, true)? else { return Err(wrong("its root is a hole")) };
    let info = info(&root)?;
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
    let deepest = if directory.geometry.incompat.contains(Incompat::LARGE_DIR) { 3 } else { 2 };
    if info.indirect_levels > deepest {
        return Err(wrong("it is too deep"));
    }
    let wanted = hash(algorithm, unsigned, directory.geometry.hash_seed, name);
    // The way down: block, number of entries and place, for each level.
    let mut path: Vec<(u32, usize)> = Vec::with_capacity(4);
    let mut logical = 0;
    for _ in 0..=info.indirect_levels {
        let Some((_, block)) = directory.block(logical, true)? else { return Err(wrong("a node is a hole")) };
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
        let Some((_, block)) = directory.block(logical, true)? else { return Err(wrong("a node is a hole")) };
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
        let Some((_, block)) = directory.block(logical, true)? else { return Err(wrong("a node is a hole")) };
        logical = Node::parse(&block, logical == 0)?.block(0);
    }
    if logical == 0 {
        return Err(wrong("a node refers to the root"));
    }
    Ok(Some(logical))
}
