//! GUID partition tables: a header and entries, each with a checksum, and a backup of both at the end of the disk.

use crc32fast::hash as crc32;

use super::{Partition, Scheme, Table, sector, u32_at, u64_at};
use crate::device::Device;
use crate::error::{Corruption, Error, Result};

const SIGNATURE: &[u8] = b"EFI PART";

/// Size in bytes of the fields of a header.
const HEADER_BYTES: usize = 92;

/// Size in bytes of the fields of an entry.
const ENTRY_BYTES: usize = 128;

/// Maximum number of entries read; tables have 128.
const MAX_ENTRIES: u32 = 4096;

/// Sector sizes of disks in bytes.
const SECTOR_SIZES: [u64; 2] = [512, 4096];

/// A header with a correct checksum.
struct Header {
    sector: u64,
    entries_at: u64,
    count: u32,
    size: usize,
    sum: u32,
}

/// Reads the table. `announced` means that the boot record indicates a GPT.
pub(super) fn read(device: &dyn Device, announced: bool) -> Result<Option<Table>> {
    let mut damage = None;
    // The primary header is in the second sector.
    let first = SECTOR_SIZES.map(|size| (size, size, false));
    let last = last(device).map(|(size, at)| (size, at, true));
    for (size, at, is_backup) in first.into_iter().chain(last) {
        // A backup without any other sign of a GPT may be a leftover of the disk's previous use.
        if is_backup && !announced && damage.is_none() {
            continue;
        }
        match header(device, size, at) {
            Ok(None) => {}
            Ok(Some(header)) => match entries(device, &header) {
                Ok(partitions) => return Ok(Some(Table { scheme: Scheme::Gpt, is_backup, partitions })),
                Err(error) => damage = damage.or(Some(error)),
            },
            Err(error) => damage = damage.or(Some(error)),
        }
    }
    match damage {
        Some(damage) => Err(damage),
        None if announced => {
            Err(Corruption::new("partition table: the protective MBR is there, but no valid GPT").into())
        }
        None => Ok(None),
    }
}

/// Reads only the backup, for a disk whose first sector is empty. A damaged backup is ignored.
pub(super) fn read_backup(device: &dyn Device) -> Result<Option<Table>> {
    for (size, at) in last(device) {
        let partitions = match header(device, size, at) {
            Ok(Some(header)) => entries(device, &header),
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        match partitions {
            Ok(partitions) => {
                return Ok(Some(Table { scheme: Scheme::Gpt, is_backup: true, partitions }));
            }
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Returns the offset of the backup header for each sector size: it is in the last sector.
fn last(device: &dyn Device) -> [(u64, u64); 2] {
    SECTOR_SIZES.map(|size| (size, (device.size() / size).saturating_sub(1) * size))
}

fn header(device: &dyn Device, size: u64, at: u64) -> Result<Option<Header>> {
    let Some(bytes) = sector(device, at)?.filter(|bytes| bytes.starts_with(SIGNATURE)) else {
        return Ok(None);
    };
    let wrong = |what: String| Err(Corruption::new(format!("partition table at {at}: {what}")).into());
    let length = u32_at(&bytes, 12) as usize;
    if !(HEADER_BYTES..=bytes.len()).contains(&length) {
        return wrong(format!("invalid header length {length}"));
    }
    let (mut summed, stored) = (bytes, u32_at(&bytes, 16));
    summed[16..20].fill(0);
    let computed = crc32(&summed[..length]);
    if stored != computed {
        return wrong(format!("checksum {stored:#010x}, computed {computed:#010x}"));
    }
    if u64_at(&bytes, 24) != at / size {
        return wrong(format!("the header names another location, sector {}", u64_at(&bytes, 24)));
    }
    let (count, entry) = (u32_at(&bytes, 80), u32_at(&bytes, 84) as usize);
    if count > MAX_ENTRIES || !(ENTRY_BYTES..=4096).contains(&entry) || !entry.is_power_of_two() {
        return wrong(format!("invalid count of {count} entries of {entry} bytes"));
    }
    let Some(entries_at) = u64_at(&bytes, 72).checked_mul(size) else {
        return wrong(format!("invalid first sector {} of the entries", u64_at(&bytes, 72)));
    };
    Ok(Some(Header { sector: size, entries_at, count, size: entry, sum: u32_at(&bytes, 88) }))
}

fn entries(device: &dyn Device, header: &Header) -> Result<Vec<Partition>> {
    let wrong = |what: String| Err(Corruption::new(format!("partition table: {what}")).into());
    let mut bytes = vec![0; header.count as usize * header.size];
    if header.entries_at.checked_add(bytes.len() as u64).is_none_or(|end| end > device.size()) {
        return wrong(format!("the entries at {} are past the end of the disk", header.entries_at));
    }
    device.read_at(header.entries_at, &mut bytes)?;
    let computed = crc32(&bytes);
    if header.sum != computed {
        return wrong(format!("checksum of the entries {:#010x}, computed {computed:#010x}", header.sum));
    }
    let mut partitions = Vec::new();
    for (number, entry) in (1..).zip(bytes.chunks_exact(header.size)) {
        if entry[..16] == [0; 16] {
            continue;
        }
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        let sectors = last.checked_sub(first).and_then(|less| less.checked_add(1));
        let range = sectors.and_then(|sectors| {
            let (start, size) = (first.checked_mul(header.sector)?, sectors.checked_mul(header.sector)?);
            (start.checked_add(size)? <= device.size()).then_some((start, size))
        });
        let Some((start, size)) = range else {
            return wrong(format!(
                "partition {number} has sectors {first} to {last}, which are not on the disk"
            ));
        };
        partitions.push(Partition {
            number,
            start,
            size,
            kind: guid(&entry[..16]),
            label: name(&entry[56..ENTRY_BYTES]),
            uuid: guid(&entry[16..32]),
        });
    }
    Ok(partitions)
}

/// Formats a GUID: the first three fields are little-endian numbers, the rest is bytes.
fn guid(bytes: &[u8]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let hex: String = order.iter().map(|&at: &usize| format!("{:02x}", bytes[at])).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn name(bytes: &[u8]) -> Option<String> {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units: Vec<u16> = units.take_while(|&unit| unit != 0).collect();
    (!units.is_empty()).then(|| String::from_utf16_lossy(&units))
}

#[cfg(test)]
mod tests {
    /// Of the polynomials with 32 bits, UEFI means that of ISO 3309.
    #[test]
    fn crc32_check_value() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
