//! Locates the journal of a file system and recovers it before use.

use std::sync::Arc;

use super::fast_commit_replay;
use crate::buffer::MetadataCache;
use crate::device::{Device, Overlay};
use crate::error::{Corruption, Error, Result};
use crate::inode::Inode;
use crate::journal::recovery::{Recovered, Recovery};
use crate::journal::{JournalArea, JournalSuperblock};
use crate::layout::{Compat, Incompat, RawSuperblock};
use crate::map;
use crate::superblock::Geometry;
use crate::superblock_backup;

/// `EXT4_ERROR_FS` of `s_state`.
const STATE_ERROR: u16 = 2;

/// Size in bytes of the metadata cache for looking up the journal's blocks.
const JOURNAL_CACHE_BYTES: usize = 1 << 20;

/// Bytes that recovery may change in addition to the journaled blocks: superblocks.
const EXTRA_OVERLAY_BYTES: u64 = 1 << 20;

/// OpenMode of opening a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenMode {
    /// For reading: the device is not written.
    Read,
    /// Only to recover it in place.
    Recover,
    /// For writing, after recovery in place.
    Write,
}

/// A file system whose journal needs no further recovery.
pub(crate) struct Opened {
    /// The given device, or an overlay with the result of recovery.
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) superblock: RawSuperblock,
    /// The journal, if it is to be written.
    pub(crate) journal: Option<(JournalArea, JournalSuperblock)>,
    pub(crate) recovered: Option<Recovered>,
}

/// Recovers a file system: in memory if it is opened for reading, else on its device. `external` is the device of an external
/// journal.
pub(crate) fn open(
    device: Arc<dyn Device>,
    external: Option<Arc<dyn Device>>,
    mode: OpenMode,
) -> Result<Opened> {
    let (geometry, mut superblock) = Geometry::read_torn(&*device)?;
    // The journal may hold an intact copy of a torn superblock. If a backup confirms it, only its checksum is wrong.
    let mut torn = Geometry::check(&superblock).err();
    let confirmed = torn.is_some() && superblock_backup::confirm(&*device, &geometry, &superblock);
    if confirmed {
        tracing::warn!("the superblock was torn by an incomplete write: repaired, a backup confirms it");
        torn = None;
    }
    let unwritable = geometry.unwritable();
    if mode == OpenMode::Write && !unwritable.is_empty() {
        return Err(Error::Unsupported(format!("writing with feature {}", unwritable.join(", "))));
    }
    let needs_recovery = geometry.incompat.contains(Incompat::NEEDS_RECOVERY);
    let has_journal = geometry.compat.contains(Compat::HAS_JOURNAL);
    if let (Some(torn), false) = (&torn, needs_recovery && has_journal) {
        return Err(Corruption::new(torn.to_string()).into());
    }
    if needs_recovery && !has_journal {
        return Err(Corruption::new("superblock: recovery is needed, but there is no journal").into());
    }
    if confirmed && mode != OpenMode::Read {
        superblock.write(&*device)?;
        device.flush()?;
    }
    if !has_journal || mode == OpenMode::Read && !needs_recovery {
        return Ok(Opened { device, geometry, superblock, journal: None, recovered: None });
    }
    let mut log = find(&device, external, &geometry, &superblock)?;
    let mut device = device;
    if mode == OpenMode::Read {
        let room = room(&log, &geometry);
        let journal = log.device().clone();
        device = Arc::new(Overlay::new(device, room));
        if confirmed {
            superblock.write(&*device)?;
        }
        log.move_to(if log.is_external() {
            Arc::new(Overlay::new(journal, EXTRA_OVERLAY_BYTES))
        } else {
            device.clone()
        });
    }
    let mut journal = log.superblock()?;
    if !needs_recovery {
        // Discard what an unclean shutdown without needed recovery left in the journal.
        if journal.start != 0 {
            (journal.start, journal.sequence) = (0, journal.sequence.wrapping_add(1));
            log.set_superblock(&journal)?;
            log.device().flush()?;
        }
        let journal = Some((log, journal));
        return Ok(Opened { device, geometry, superblock, journal, recovered: None });
    }
    let recovery = Recovery { device: &*device, log: &log, superblock: &journal, geometry: &geometry };
    let mut found = recovery.read()?;
    let mut fast_changes = 0;
    if !found.fast.is_empty() {
        let room = room(&log, &geometry);
        match fast_commit_replay::commit(&recovery, &device, &found, room) {
            Ok(()) => {
                fast_changes = found.fast.len();
                found = recovery.read()?;
            }
            Err(error) if mode == OpenMode::Read => {
                let changes = found.fast.len();
                tracing::warn!(
                    "cannot apply {changes} changes of fast commits: {}; they are missing from this read-only view",
                    error.cause()
                );
            }
            Err(error) => {
                return Err(Error::Journal(format!("cannot apply its fast commits: {error}")));
            }
        }
    }
    if let Some(torn) = torn.filter(|_| !found.has_superblock()) {
        return Err(torn);
    }
    let recovered = Recovered { fast_changes, ..recovery.write(&found)? };
    device.flush()?;
    let failed = journal.errno != 0;
    (journal.start, journal.sequence, journal.errno) = (0, recovered.next, 0);
    log.set_superblock(&journal)?;
    log.device().flush()?;
    let (geometry, superblock) = mark_recovered(&*device, &superblock, failed)?;
    Ok(Opened { device, geometry, superblock, journal: Some((log, journal)), recovered: Some(recovered) })
}

/// Recovers a file system in place and empties its journal, like `e2fsck -E journal_only`. `journal` is the device of an external
/// journal. Returns what was recovered; `None` if nothing had to be.
///
/// # Errors
/// The errors of [`Geometry::read`]; [`Error::Journal`] if the journal is not the given or required one; [`Error::Corrupt`] if it
/// is damaged, in which case nothing has been written.
pub fn recover(device: Arc<dyn Device>, journal: Option<Arc<dyn Device>>) -> Result<Option<Recovered>> {
    if device.is_read_only() || journal.as_ref().is_some_and(|journal| journal.is_read_only()) {
        return Err(Error::Journal("recovery needs write access to the device and the journal".into()));
    }
    Ok(open(device, journal, OpenMode::Recover)?.recovered)
}

/// Returns the internal journal of a file system opened for reading, if it has one that can be located.
pub(crate) fn inside(
    device: &Arc<dyn Device>,
    geometry: &Geometry,
    superblock: &RawSuperblock,
) -> Option<JournalArea> {
    let has_journal = geometry.compat.contains(Compat::HAS_JOURNAL) && superblock.journal_inum.get() != 0;
    has_journal.then(|| find(device, None, geometry, superblock).ok()).flatten()
}

/// Upper bound of the memory for changes by recovery: at worst each journal block changes a different page of an overlay, and is
/// changed again by fast commits, which become a transaction.
fn room(log: &JournalArea, geometry: &Geometry) -> u64 {
    2 * u64::from(log.blocks()) * u64::from(geometry.block_size.max(4096)) + EXTRA_OVERLAY_BYTES
}

/// Locates the blocks of the journal.
fn find(
    device: &Arc<dyn Device>,
    external: Option<Arc<dyn Device>>,
    geometry: &Geometry,
    superblock: &RawSuperblock,
) -> Result<JournalArea> {
    let number = superblock.journal_inum.get();
    if number == 0 {
        let Some(external) = external else {
            return Err(Error::Journal("it is on an external device, which was not given".into()));
        };
        let log = JournalArea::external(external, geometry.block_bits, &superblock.journal_uuid)?;
        if log.superblock()?.users().len() != 1 {
            return Err(Error::Journal("it is shared with other file systems".into()));
        }
        return Ok(log);
    }
    if external.is_some() {
        return Err(Error::Journal("it is inside the file system, not on the given device".into()));
    }
    let store = MetadataCache::new(device.clone(), geometry, JOURNAL_CACHE_BYTES);
    let inode = match Inode::read(geometry, &store, number) {
        // Metadata that locates the inode may be torn; recovery repairs it.
        Err(Error::Corrupt(_) | Error::NotFound) if superblock.jnl_backup_type == 1 => {
            Inode::of_journal(number, &superblock.jnl_blocks.map(|word| word.get()))
        }
        inode => inode?,
    };
    let length = u32::try_from(inode.size >> geometry.block_bits)
        .ok()
        .filter(|&length| u64::from(length) < geometry.blocks)
        .ok_or_else(|| Corruption::new(format!("invalid journal size {}", inode.size)).inode(number))?;
    JournalArea::internal(device.clone(), geometry.block_bits, length, |logical, limit| {
        map::map(geometry, &store, &inode, logical, limit)
    })
}

/// Writes the superblock after recovery. `before` is the superblock before recovery.
fn mark_recovered(
    device: &dyn Device,
    before: &RawSuperblock,
    failed: bool,
) -> Result<(Geometry, RawSuperblock)> {
    let (_, mut superblock) = Geometry::read(device)?;
    let incompat = superblock.feature_incompat.get() & !Incompat::NEEDS_RECOVERY.bits();
    superblock.feature_incompat = incompat.into();
    // Errors are recorded outside of the journal, so a journaled superblock may be older.
    let recorded = before.state.get() & STATE_ERROR;
    let state = superblock.state.get() | recorded | if failed { STATE_ERROR } else { 0 };
    superblock.state = state.into();
    if Geometry::check(before).is_ok() && before.error_count.get() > superblock.error_count.get() {
        superblock.take_errors(before);
    }
    superblock.write(device)?;
    device.flush()?;
    Geometry::read(device)
}
