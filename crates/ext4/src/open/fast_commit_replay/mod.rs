//! Converts fast commits into a regular transaction behind the last one in the journal.
//!
//! The changes are applied in memory first. The blocks that differ are committed to the journal under the transaction number that
//! invalidates the fast commits, so that a crash leaves either them or the transaction. Recovery then proceeds as usual.

mod apply;
mod ranges;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::device::{Device, Overlay};
use crate::error::{Error, Result};
use crate::filesystem::Filesystem;
use crate::journal::JournalWriter;
use crate::journal::recovery::{Found, Recovery};
use crate::superblock::Geometry;

/// Commits the changes of fast commits, using at most `room` bytes of memory.
///
/// # Errors
/// [`Error::Corrupt`] for changes that do not fit the file system, [`Error::Unsupported`] if the file system cannot be written,
/// [`Error::Journal`] if the journal has no room; nothing has been written then.
pub(crate) fn commit(
    recovery: &Recovery<'_>,
    device: &Arc<dyn Device>,
    found: &Found,
    room: u64,
) -> Result<()> {
    let before = Arc::new(Overlay::new(device.clone(), room));
    recovery.write_to(&*before, found)?;
    let (geometry, _) = Geometry::read(&*before)?;
    let unwritable = geometry.unwritable();
    if !unwritable.is_empty() {
        return Err(Error::Unsupported(format!("writing with feature {}", unwritable.join(", "))));
    }
    let after = Arc::new(Overlay::new(before.clone(), room));
    let fs = Filesystem::unjournaled(after.clone(), recovery.log)?;
    apply::apply(&fs, &found.fast)?;
    fs.sync()?;
    drop(fs);
    let blocks = changed(&*before, &after, geometry.block_size)?;
    if let Some((number, _)) = blocks.iter().find(|(number, _)| recovery.log.overlaps(*number, 1)) {
        return Err(Error::Journal(format!("a fast commit changes block {number} of the journal itself")));
    }
    let mut ring = JournalWriter::resume(recovery.log.clone(), recovery.superblock, found.end, found.next);
    ring.write(&**device, &blocks, &[])
}

type Block = (u64, Vec<u8>);

/// Returns the blocks that differ.
fn changed<D: Device>(before: &dyn Device, after: &Overlay<D>, block_size: u32) -> Result<Vec<Block>> {
    let size = u64::from(block_size);
    let (starts, length) = after.changes();
    let end = after.size() / size;
    let numbers: BTreeSet<u64> =
        starts.into_iter().flat_map(|start| start / size..(start + length).div_ceil(size).min(end)).collect();
    let (mut old, mut new) = (vec![0; block_size as usize], vec![0; block_size as usize]);
    let mut blocks = Vec::new();
    for number in numbers {
        before.read_at(number * size, &mut old)?;
        after.read_at(number * size, &mut new)?;
        if old != new {
            blocks.push((number, new.clone()));
        }
    }
    Ok(blocks)
}
