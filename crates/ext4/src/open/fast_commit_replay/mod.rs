//! Fast commits become a transaction like any other, behind the last one in the journal.
//!
//! What they tell of is done in memory first. The blocks that this changes are committed to the journal under the number
//! that makes the fast commits void: a crash leaves either them, or the transaction. From there on recovery has one way.

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

/// Commits the changes of fast commits. At most `room` bytes of memory hold what is changed.
///
/// # Errors
/// [`Error::Corrupt`] for what does not fit the file system, [`Error::Unsupported`] where it cannot be written,
/// [`Error::Journal`] where the journal has no room; nothing was written then.
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
        return Err(Error::Unsupported(format!("writing with {}", unwritable.join(", "))));
    }
    let after = Arc::new(Overlay::new(before.clone(), room));
    let fs = Filesystem::unjournaled(after.clone(), recovery.log)?;
    apply::apply(&fs, &found.fast)?;
    fs.sync()?;
    drop(fs);
    let blocks = changed(&*before, &after, geometry.block_size)?;
    if let Some((number, _)) = blocks.iter().find(|(number, _)| recovery.log.holds(*number, 1)) {
        return Err(Error::Journal(format!("block {number} is its own")));
    }
    let mut ring = JournalWriter::resume(recovery.log.clone(), recovery.superblock, found.end, found.next);
    ring.write(&**device, &blocks, &[])
}

type Block = (u64, Vec<u8>);

/// The blocks that differ.
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
