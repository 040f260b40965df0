//! Fills in the checksums of a mutated image, so that readers get as far as the mutations.
//!
//! Implemented independently of the engine, from the format's documentation.

use shunt_ext4::journal::layout::{RawJournalSuperblock, TagFlags};
use shunt_ext4::journal::{crc32_be, superblock_sum};
use shunt_ext4::layout::RawSuperblock;

use crate::find::{Journal, Kind, Site, Structures};
use crate::number::{Field, big_u32_at, put_u32, u16_at, u32_at};

/// crc32c without the final inversion.
fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

fn crc16(sum: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(sum, |sum, &byte| {
        (0..8).fold(sum ^ u16::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xa001 } else { sum >> 1 })
    })
}

/// Checksum algorithm of an image, according to its current superblock.
enum Summing {
    None,
    /// Group descriptors only, with the UUID.
    Groups([u8; 16]),
    /// All metadata, with this seed.
    All(u32),
}

const RO_GROUP_SUMS: u32 = 0x10;
const RO_ALL_SUMS: u32 = 0x400;
const INCOMPAT_SEED: u32 = 0x2000;

impl Summing {
    fn of(superblock: &[u8]) -> Self {
        use std::mem::offset_of;
        let uuid_at = offset_of!(RawSuperblock, uuid);
        let uuid: [u8; 16] = superblock[uuid_at..uuid_at + 16].try_into().expect("sixteen bytes");
        let ro_compat = u32_at(superblock, offset_of!(RawSuperblock, feature_ro_compat));
        let incompat = u32_at(superblock, offset_of!(RawSuperblock, feature_incompat));
        match (ro_compat & RO_ALL_SUMS != 0, ro_compat & RO_GROUP_SUMS != 0) {
            (true, _) if incompat & INCOMPAT_SEED != 0 => {
                Self::All(u32_at(superblock, offset_of!(RawSuperblock, checksum_seed)))
            }
            (true, _) => Self::All(crc32c(!0, &uuid)),
            (false, true) => Self::Groups(uuid),
            (false, false) => Self::None,
        }
    }
}

/// Offset of the generation in an inode.
const GENERATION: usize = 0x64;

/// Fills in all checksums. Structures are expected where they were before mutation.
pub(crate) fn repair(image: &mut [u8], structures: &Structures) {
    let sites = |kind| structures.sites.get(&kind).map_or(&[][..], Vec::as_slice);
    let Some(superblock) = sites(Kind::Superblock).first() else { return };
    let summing = Summing::of(&image[superblock.start..][..superblock.length]);
    if let Summing::All(seed) = summing {
        let owner = |image: &[u8], site: &Site| {
            let inode = sites(Kind::Inode).iter().find(|inode| inode.owner == site.owner);
            let generation = inode.map_or(0, |inode| u32_at(image, inode.start + GENERATION));
            crc32c(crc32c(seed, &site.owner.to_le_bytes()), &generation.to_le_bytes())
        };
        for site in structures.sites.values().flatten() {
            let range = site.start..site.start + site.length;
            match site.kind {
                Kind::Inode => inode(seed, site.owner, &mut image[range]),
                Kind::BlockBitmap | Kind::InodeBitmap => bitmap(seed, image, site, structures),
                Kind::ExtentNode => {
                    let seed = owner(image, site);
                    extents(seed, &mut image[range]);
                }
                Kind::DirectoryLeaf | Kind::IndexRoot | Kind::IndexNode => {
                    let seed = owner(image, site);
                    directory(seed, site.kind, &mut image[range]);
                }
                Kind::Xattrs => attributes(seed, site.block, &mut image[range]),
                Kind::OrphanBlock => {
                    let seed = crc32c(owner(image, site), &site.block.to_le_bytes());
                    let end = range.end;
                    let sum = crc32c(seed, &image[range.start..end - 8]);
                    put_u32(image, end - 4, sum);
                }
                _ => {}
            }
        }
    }
    for site in sites(Kind::Descriptor) {
        descriptor(&summing, site.owner, &mut image[site.start..site.start + site.length]);
    }
    if let Summing::All(_) = summing {
        for site in sites(Kind::Superblock) {
            let sum = crc32c(!0, &image[site.start..site.start + site.length - 4]);
            put_u32(image, site.start + site.length - 4, sum);
        }
    }
    if let Some(found) = &structures.journal {
        journal(image, found, structures.geometry.block_size as usize);
    }
}

fn inode(seed: u32, number: u32, bytes: &mut [u8]) {
    let (low, high) = (0x7c, 0x82);
    let extra = if bytes.len() > 128 { u16_at(bytes, 128) } else { 0 };
    Field::little(low, 2).put(bytes, 0);
    if extra >= 4 {
        Field::little(high, 2).put(bytes, 0);
    }
    let generation = u32_at(bytes, GENERATION);
    let sum = crc32c(crc32c(crc32c(seed, &number.to_le_bytes()), &generation.to_le_bytes()), bytes);
    Field::little(low, 2).put(bytes, u64::from(sum & 0xffff));
    if extra >= 4 {
        Field::little(high, 2).put(bytes, u64::from(sum >> 16));
    }
}

/// Fills in the checksum of a bitmap, which is in the descriptor of its group.
fn bitmap(seed: u32, image: &mut [u8], site: &Site, structures: &Structures) {
    let geometry = &structures.geometry;
    let (low, high, bits) = match site.kind {
        Kind::BlockBitmap => (0x18, 0x38, geometry.blocks_per_group / geometry.cluster_blocks),
        _ => (0x1a, 0x3a, geometry.inodes_per_group),
    };
    let length = (bits as usize / 8).min(site.length);
    let sum = crc32c(seed, &image[site.start..site.start + length]);
    for group in structures.sites[&Kind::Descriptor].iter().filter(|group| group.owner == site.owner) {
        let bytes = &mut image[group.start..group.start + group.length];
        Field::little(low, 2).put(bytes, u64::from(sum & 0xffff));
        Field::little(high, 2).put(bytes, u64::from(sum >> 16));
    }
}

fn descriptor(summing: &Summing, group: u32, bytes: &mut [u8]) {
    let at = 0x1e;
    let group = group.to_le_bytes();
    let sum = match summing {
        Summing::None => return,
        Summing::All(seed) => {
            Field::little(at, 2).put(bytes, 0);
            crc32c(crc32c(*seed, &group), bytes) as u16
        }
        Summing::Groups(uuid) => {
            let head = crc16(crc16(crc16(!0, uuid), &group), &bytes[..at]);
            crc16(head, &bytes[at + 2..])
        }
    };
    Field::little(at, 2).put(bytes, sum.into());
}

/// Fills in the checksum of an extent node, behind the maximum number of entries.
fn extents(seed: u32, bytes: &mut [u8]) {
    let end = 12 + 12 * u16_at(bytes, 4);
    if end + 4 <= bytes.len() {
        let sum = crc32c(seed, &bytes[..end]);
        put_u32(bytes, end, sum);
    }
}

fn directory(seed: u32, kind: Kind, bytes: &mut [u8]) {
    let end = bytes.len();
    let start = match kind {
        Kind::DirectoryLeaf => {
            let sum = crc32c(seed, &bytes[..end - 12]);
            put_u32(bytes, end - 4, sum);
            return;
        }
        Kind::IndexRoot => 32,
        _ => 8,
    };
    let (limit, count) = (u16_at(bytes, start), u16_at(bytes, start + 2));
    let tail = start + limit * 8;
    if tail + 8 <= end && count <= limit {
        let used = crc32c(seed, &bytes[..start + count * 8]);
        let sum = crc32c(crc32c(used, &bytes[tail..tail + 4]), &[0; 4]);
        put_u32(bytes, tail + 4, sum);
    }
}

fn attributes(seed: u32, block: u64, bytes: &mut [u8]) {
    put_u32(bytes, 16, 0);
    let sum = crc32c(crc32c(seed, &block.to_le_bytes()), bytes);
    put_u32(bytes, 16, sum);
}

/// Fills in journal checksums: version 1 covers a transaction in its commit record, versions 2 and 3 cover each block.
fn journal(image: &mut [u8], journal: &Journal, size: usize) {
    for transaction in &journal.transactions {
        let mut whole = !0;
        for (start, tags) in &transaction.descriptors {
            let sequence = big_u32_at(image, start + 8);
            let mut at = start + 12;
            for (tag, copy) in tags {
                if let Some(sums) = journal.sums {
                    let sum = sums.copy(sequence, &image[*copy..copy + size]);
                    let wide = journal.form.size() == 16;
                    let field = if wide { Field::big(at + 12, 4) } else { Field::big(at + 4, 2) };
                    field.put(image, sum.into());
                }
                let uuid = if tag.flags.contains(TagFlags::SAME_UUID) { 0 } else { 16 };
                at += journal.form.size() + uuid;
            }
            if let Some(sums) = journal.sums {
                sums.seal_tail(&mut image[*start..start + size]);
            }
            if journal.old_sums {
                whole = crc32_be(whole, &image[*start..start + size]);
                whole = tags.iter().fold(whole, |sum, (_, copy)| crc32_be(sum, &image[*copy..copy + size]));
            }
        }
        let commit = transaction.commit;
        if let Some(sums) = journal.sums {
            for &start in &transaction.revocations {
                sums.seal_tail(&mut image[start..start + size]);
            }
            sums.seal_commit(&mut image[commit..commit + size]);
        } else if journal.old_sums {
            Field::big(commit + 16, 4).put(image, whole.into());
        }
    }
    fast_commits(image, &journal.fast, size);
    if journal.sums.is_none() {
        return;
    }
    let head = &mut image[journal.superblock..][..size_of::<RawJournalSuperblock>()];
    let bytes: &mut [u8; size_of::<RawJournalSuperblock>()] =
        head.try_into().expect("the length was checked");
    let sum = superblock_sum(bytes);
    Field::big(0xfc, 4).put(bytes, sum.into());
}

/// Fills in fast-commit checksums: the checksum in a tail covers the records since the previous tail.
fn fast_commits(image: &mut [u8], blocks: &[usize], size: usize) {
    const TAIL: usize = 8;
    let mut sum = 0;
    for &start in blocks {
        let block = &mut image[start..start + size];
        let mut record = 0;
        while record + 4 <= size {
            let end = record + 4 + u16_at(block, record + 2);
            if end > size {
                break;
            }
            if u16_at(block, record) == TAIL {
                let covered = crc32c(sum, &block[record..(record + 8).min(size)]);
                put_u32(block, record + 8, covered);
                sum = 0;
                break;
            }
            sum = crc32c(sum, &block[record..end]);
            record = end;
        }
    }
}
