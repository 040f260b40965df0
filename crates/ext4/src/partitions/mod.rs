//! The partitions of a disk: a GPT, or the table in a master boot record with its logical partitions.
//!
//! Both are read from whatever image somebody hands over, so each number in them is checked against the device.

mod crc32;
mod gpt;
mod mbr;

use std::fmt;

use crate::device::Device;
use crate::error::Result;

/// Bytes of a sector where nothing says otherwise.
const SECTOR: u64 = 512;

/// What kind of table a disk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// A GUID partition table.
    Gpt,
    /// The table of a master boot record.
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

/// A part of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as the kernel counts: from 1; logical partitions from 5.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Size in bytes.
    pub size: u64,
    /// What it is said to hold: a GUID, or two hexadecimal digits.
    pub kind: String,
    /// Its name; only a GPT has names.
    pub label: Option<String>,
    /// Its identifier, as `PARTUUID`.
    pub uuid: String,
}

/// The table of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What kind of table.
    pub scheme: Scheme,
    /// The first copy of a GPT is damaged: this is the second.
    pub is_backup: bool,
    /// The partitions by number. They lie on the device, and hold at least one byte.
    pub partitions: Vec<Partition>,
}

/// Reads the partition table of a disk; `None` where there is none.
///
/// # Errors
/// [`Error::Corrupt`](crate::Error::Corrupt) for a table that is damaged, [`Error::Io`](crate::Error::Io).
pub fn read(device: &dyn Device) -> Result<Option<Table>> {
    let Some(boot) = sector(device, 0)? else { return Ok(None) };
    if let Some(table) = gpt::read(device, mbr::is_protective(&boot))? {
        return Ok(Some(table));
    }
    match mbr::read(device, &boot)? {
        Some(table) => Ok(Some(table)),
        // The beginning was wiped, and the table with it, its copy not.
        None if boot == [0; SECTOR as usize] => gpt::read_backup(device),
        None => Ok(None),
    }
}

/// 512 bytes of the device; `None` past its end.
fn sector(device: &dyn Device, offset: u64) -> Result<Option<[u8; SECTOR as usize]>> {
    let mut bytes = [0; SECTOR as usize];
    if offset.checked_add(SECTOR).is_none_or(|end| end > device.size()) {
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
