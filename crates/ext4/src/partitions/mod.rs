//! Partition tables: GPT, and MBR with logical partitions.
//!
//! Tables come from untrusted images, so each number in them is checked against the device.

mod gpt;
mod mbr;

use std::fmt;

use crate::device::Device;
use crate::error::Result;

/// Default sector size in bytes.
const SECTOR_BYTES: u64 = 512;

/// Type of a partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
        })
    }
}

/// A partition of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Partition number, as in the kernel: from 1; logical partitions from 5.
    pub number: u32,
    /// Offset in bytes.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// Partition type: a GUID, or two hexadecimal digits.
    pub kind: String,
    /// Partition name; only GPT partitions have one.
    pub label: Option<String>,
    /// Partition identifier, as in `PARTUUID`.
    pub uuid: String,
}

/// A partition table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Type of the table.
    pub scheme: Scheme,
    /// Set if this is the backup of a GPT whose primary table is damaged.
    pub is_backup: bool,
    /// Partitions by number. They lie on the device and are not empty.
    pub partitions: Vec<Partition>,
}

/// Reads the partition table of a disk; `None` if there is none.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) for a damaged table, [`Error::Io`](crate::Error::Io).
pub fn read(device: &dyn Device) -> Result<Option<Table>> {
    let Some(boot) = sector(device, 0)? else { return Ok(None) };
    if let Some(table) = gpt::read(device, mbr::is_protective(&boot))? {
        return Ok(Some(table));
    }
    match mbr::read(device, &boot)? {
        Some(table) => Ok(Some(table)),
        // The start of the disk, and with it the primary table, was wiped, but the backup was not.
        None if boot == [0; SECTOR_BYTES as usize] => gpt::read_backup(device),
        None => Ok(None),
    }
}

/// Reads 512 bytes of the device; `None` beyond its end.
fn sector(device: &dyn Device, offset: u64) -> Result<Option<[u8; SECTOR_BYTES as usize]>> {
    let mut bytes = [0; SECTOR_BYTES as usize];
    if offset.checked_add(SECTOR_BYTES).is_none_or(|end| end > device.size()) {
        return Ok(None);
    }
    device.read_at(offset, &mut bytes)?;
    Ok(Some(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests;
