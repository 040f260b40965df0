//! Backup copies of the superblock, used to distinguish a torn superblock from a damaged one.
//!
//! The fields of a superblock that change outside of the journal, when a file system is opened and closed, are in its first half;
//! the checksum is in the second. A power failure between two sector writes leaves a superblock that is correct except for its
//! checksum. Comparison with a backup distinguishes that case from damage.

use zerocopy::{FromBytes, IntoBytes};

use crate::device::Device;
use crate::layout::{Compat, Incompat, RawSuperblock, RoCompat, SUPERBLOCK_MAGIC};
use crate::superblock::Geometry;

/// Number of backups to read; all have the same content.
const MAX_BACKUPS: usize = 4;

/// Reports whether a backup confirms that a superblock with a wrong checksum is only torn.
pub(crate) fn confirm(device: &dyn Device, geometry: &Geometry, raw: &RawSuperblock) -> bool {
    let groups = (1..geometry.groups).filter(|&group| geometry.has_superblock(group)).take(MAX_BACKUPS);
    groups.into_iter().any(|group| {
        let mut bytes = [0; size_of::<RawSuperblock>()];
        if device.read_at(geometry.group_start(group) << geometry.block_bits, &mut bytes).is_err() {
            return false;
        }
        let Ok(copy) = RawSuperblock::read_from_bytes(&bytes) else { return false };
        copy.magic.get() == SUPERBLOCK_MAGIC
            && Geometry::check(&copy).is_ok()
            && lasting(raw).as_bytes() == lasting(&copy).as_bytes()
    })
}

/// Returns the fields that only mke2fs, tune2fs and resize2fs set and that backups contain as well; all others are zeroed.
fn lasting(raw: &RawSuperblock) -> RawSuperblock {
    let mut raw = raw.clone();
    raw.free_blocks_count_lo = 0.into();
    raw.free_blocks_count_hi = 0.into();
    raw.free_inodes_count = 0.into();
    (raw.mtime, raw.wtime, raw.lastcheck) = (0.into(), 0.into(), 0.into());
    (raw.mtime_hi, raw.wtime_hi, raw.lastcheck_hi) = (0, 0, 0);
    (raw.mnt_count, raw.state, raw.block_group_nr) = (0.into(), 0.into(), 0.into());
    (raw.last_orphan, raw.kbytes_written, raw.overhead_clusters) = (0.into(), 0.into(), 0.into());
    raw.last_mounted = [0; 64];
    raw.lpf_ino = 0.into();
    // The journal may have been created later; the one in use is found by its inode.
    raw.jnl_backup_type = 0;
    raw.jnl_blocks = [0.into(); 17];
    let clear = |bits: u32, which: u32| (bits & !which).into();
    // These features are set on first use.
    raw.feature_compat = clear(raw.feature_compat.get(), Compat::EXT_ATTR.bits());
    raw.feature_incompat = clear(raw.feature_incompat.get(), Incompat::NEEDS_RECOVERY.bits());
    let used = RoCompat::LARGE_FILE | RoCompat::ORPHAN_PRESENT;
    raw.feature_ro_compat = clear(raw.feature_ro_compat.get(), used.bits());
    raw.checksum = 0.into();
    let errors =
        std::mem::offset_of!(RawSuperblock, error_count)..std::mem::offset_of!(RawSuperblock, mount_opts);
    raw.as_mut_bytes()[errors].fill(0);
    (raw.first_error_time_hi, raw.last_error_time_hi) = (0, 0);
    (raw.first_error_errcode, raw.last_error_errcode) = (0, 0);
    raw
}
