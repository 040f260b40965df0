//! Checkpoint I/O: writes committed blocks to their final locations.

use super::cache::Bytes;
use crate::device::Device;
use crate::error::Result;

/// Maximum size of one write.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// Writes blocks, sorted by number, merging adjacent ones into one write.
pub(super) fn write(device: &dyn Device, block_bits: u32, blocks: &[(u64, Bytes)]) -> Result<()> {
    let limit = MAX_WRITE_BYTES >> block_bits;
    let mut rest = blocks;
    let mut gathered = Vec::new();
    while let Some((first, _)) = rest.first() {
        let follows = |(index, (number, _)): &(usize, &(u64, Bytes))| *number == first + *index as u64;
        let count = rest.iter().enumerate().take(limit).take_while(follows).count();
        let (run, after) = rest.split_at(count);
        gathered.clear();
        run.iter().for_each(|(_, bytes)| gathered.extend_from_slice(bytes));
        device.write_at(first << block_bits, &gathered)?;
        rest = after;
    }
    Ok(())
}
