//! Master boot records: four entries, and a chain of extended boot records for logical partitions.

use super::{Partition, SECTOR_BYTES, Scheme, Table, sector, u32_at};
use crate::device::Device;
use crate::error::{Corruption, Result};

/// Offset of the four entries.
const ENTRIES_OFFSET: usize = 446;

/// Size of an entry in bytes.
const ENTRY_BYTES: usize = 16;

/// Offset of the disk identifier.
const IDENTIFIER_OFFSET: usize = 440;

/// Type of the partition that protects a GPT.
const PROTECTIVE_TYPE: u8 = 0xee;

/// Types of extended partitions.
const EXTENDED_TYPES: [u8; 3] = [0x05, 0x0f, 0x85];

/// Maximum number of logical partitions, as in the kernel. It also terminates a cyclic chain.
const MAX_LOGICAL_PARTITIONS: u32 = 256;

type Sector = [u8; SECTOR_BYTES as usize];

struct Entry {
    kind: u8,
    /// In sectors, relative to a base that depends on the record.
    start: u64,
    sectors: u64,
}

fn is_record(bytes: &Sector) -> bool {
    bytes[510..] == [0x55, 0xaa]
}

fn entries(bytes: &Sector) -> [Entry; 4] {
    [0, 1, 2, 3].map(|n| {
        let entry = &bytes[ENTRIES_OFFSET + n * ENTRY_BYTES..][..ENTRY_BYTES];
        Entry { kind: entry[4], start: u32_at(entry, 8).into(), sectors: u32_at(entry, 12).into() }
    })
}

/// Reports whether the boot record indicates a GPT.
pub(super) fn is_protective(boot: &Sector) -> bool {
    is_record(boot) && entries(boot).iter().any(|entry| entry.kind == PROTECTIVE_TYPE)
}

pub(super) fn read(device: &dyn Device, boot: &Sector) -> Result<Option<Table>> {
    // Boot sectors of file systems have the same signature, but code instead of valid entries.
    let sensible = || boot[ENTRIES_OFFSET..510].chunks_exact(ENTRY_BYTES).all(|entry| entry[0] & 0x7f == 0);
    if !is_record(boot) || !sensible() {
        return Ok(None);
    }
    let disk = u32_at(boot, IDENTIFIER_OFFSET);
    let mut found = Found { device, disk, partitions: Vec::new() };
    let mut extended = None;
    for (number, entry) in (1..).zip(entries(boot)) {
        if EXTENDED_TYPES.contains(&entry.kind) {
            extended = extended.or(Some(entry.start));
        } else {
            found.add(number, &entry, 0)?;
        }
    }
    if let Some(start) = extended {
        found.logical(start)?;
    }
    let partitions = found.partitions;
    Ok((!partitions.is_empty()).then_some(Table { scheme: Scheme::Mbr, is_backup: false, partitions }))
}

struct Found<'a> {
    device: &'a dyn Device,
    disk: u32,
    partitions: Vec<Partition>,
}

impl Found<'_> {
    fn add(&mut self, number: u32, entry: &Entry, base: u64) -> Result<()> {
        if entry.kind == 0 || entry.sectors == 0 {
            return Ok(());
        }
        // No overflow: sums of a few 32-bit numbers.
        let (start, size) = ((base + entry.start) * SECTOR_BYTES, entry.sectors * SECTOR_BYTES);
        if start + size > self.device.size() {
            let what = format!(
                "partition table: partition {number} ends at {}, past the end of the disk",
                start + size
            );
            return Err(Corruption::new(what).into());
        }
        let uuid = format!("{:08x}-{number:02x}", self.disk);
        let kind = format!("{:02x}", entry.kind);
        self.partitions.push(Partition { number, start, size, kind, label: None, uuid });
        Ok(())
    }

    /// Walks the chain. Each record has one partition, relative to itself, and the next record, relative to the first.
    fn logical(&mut self, first: u64) -> Result<()> {
        let mut at = first;
        for number in 5..5 + MAX_LOGICAL_PARTITIONS {
            let Some(record) = sector(self.device, at * SECTOR_BYTES)?.filter(is_record) else {
                return Ok(());
            };
            let [partition, next, ..] = entries(&record);
            self.add(number, &partition, at)?;
            if !EXTENDED_TYPES.contains(&next.kind) || next.start == 0 {
                return Ok(());
            }
            at = first + next.start;
        }
        Err(Corruption::new(format!(
            "partition table: more than {MAX_LOGICAL_PARTITIONS} logical partitions"
        ))
        .into())
    }
}
