use std::sync::Arc;

use super::*;
use crate::block_mapping::{MappedRange, Mapping};
use crate::device::MemoryDevice;
use crate::journal::layout::{BlockHeader, JournalCompat, JournalIncompat, RawJournalSuperblock};

const RING: u32 = 1088;

/// Reads a journal with these blocks in its fast-commit area.
fn changes(blocks: &[Vec<u8>]) -> Result<Vec<Change>> {
    let mut raw = RawJournalSuperblock::read_from_bytes(&[0; 1024]).unwrap();
    raw.header = BlockHeader::new(crate::journal::layout::block_type::SUPERBLOCK_V2, 0);
    (raw.blocksize, raw.maxlen, raw.first) = (1024.into(), RING.into(), 1.into());
    raw.num_fc_blocks = 64.into();
    raw.feature_incompat = JournalIncompat::FAST_COMMIT.bits().into();
    let bytes: [u8; 1024] = zerocopy::transmute!(raw);
    let superblock = JournalSuperblock::parse(&bytes, 1024, RING)?;
    assert_eq!((superblock.compat, superblock.end, superblock.fast), (JournalCompat::empty(), 1024, 1025));
    let mut bytes = vec![0; RING as usize * 1024];
    for (index, block) in blocks.iter().enumerate() {
        bytes[(1025 + index) * 1024..][..block.len()].copy_from_slice(block);
    }
    let map = |logical, limit| {
        Ok(MappedRange { logical, length: limit, mapping: Mapping::Written(u64::from(logical)) })
    };
    let log = JournalArea::internal(Arc::new(MemoryDevice::new(bytes)), 10, RING, map)?;
    read(&log, &superblock, 7)
}

fn record(kind: u16, value: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes(), &(value.len() as u16).to_le_bytes(), value].concat()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Ends a fast commit with a checksum over everything before.
fn tail(mut bytes: Vec<u8>, before: &[u8], tid: u32) -> Vec<u8> {
    let room = 1024 - bytes.len() - 4;
    let mut value = words(&[tid, 0]);
    value.resize(room, 0);
    let record = record(tag::TAIL, &value);
    let sum = crc32c(crc32c(crc32c(0, before), &bytes), &record[..8]);
    let at = bytes.len() + 8;
    bytes.extend(record);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn head(tid: u32) -> Vec<u8> {
    record(tag::HEAD, &words(&[0, tid]))
}

#[test]
fn every_fast_commit_record_is_parsed() {
    let name = |kind| record(kind, &[words(&[2, 12]), b"name".to_vec()].concat());
    let mut first = head(7);
    first.extend(record(tag::ADD_RANGE, &words(&[12, 3, 4, 500])));
    first.extend(record(tag::DEL_RANGE, &words(&[12, 9, 10])));
    first.extend(record(tag::INODE, &[words(&[12]), vec![1; 160]].concat()));
    let room = 1024 - first.len() - 4;
    first.extend(record(tag::PAD, &vec![0; room]));
    let second = tail([name(tag::CREAT), name(tag::LINK), name(tag::UNLINK)].concat(), &first, 7);
    let third = tail(name(tag::LINK), &[], 7);
    // Leftovers of an older transaction.
    let stale = tail(name(tag::LINK), &[], 6);
    let (parent, inode, name) = (2, 12, b"name".to_vec());
    let extent = words(&[3, 4, 500]).try_into().unwrap();
    let link = Change::Link { parent, inode, name: name.clone() };
    let expected = [
        Change::Add { inode, extent },
        Change::Delete { inode, logical: 9, length: 10 },
        Change::Inode { inode, raw: vec![1; 160] },
        Change::Create { parent, inode, name: name.clone() },
        link.clone(),
        Change::Unlink { parent, inode, name },
        link,
    ];
    assert_eq!(changes(&[first.clone(), second.clone(), third.clone(), stale.clone()]).unwrap(), expected);
    assert_eq!(changes(&[first.clone(), second.clone(), stale]).unwrap(), expected[..6]);
    // A commit without its tail, or with a changed byte, is invalid.
    assert_eq!(changes(std::slice::from_ref(&first)).unwrap(), []);
    let mut damaged = second;
    damaged[9] ^= 1;
    assert_eq!(changes(&[first, damaged, third]).unwrap(), []);
}

#[test]
fn invalid_fast_commit_is_ignored() {
    assert_eq!(changes(&[]).unwrap(), []);
    assert_eq!(changes(&[tail(head(8), &[], 8)]).unwrap(), []);
    assert_eq!(changes(&[tail(Vec::new(), &[], 7)]).unwrap(), []);
    assert_eq!(changes(&[vec![0xff; 1024]]).unwrap(), []);
    let future = tail(record(tag::HEAD, &words(&[1, 7])), &[], 7);
    assert!(matches!(changes(&[future]), Err(Error::Unsupported(_))));
}

#[test]
fn full_fast_commit_area_is_read_completely() {
    let name = record(tag::LINK, &[words(&[2, 12]), b"name".to_vec()].concat());
    let one = |n: usize| tail(if n == 0 { [head(7), name.clone()].concat() } else { name.clone() }, &[], 7);
    let mut blocks: Vec<_> = (0..63).map(one).collect();
    assert_eq!(changes(&blocks).unwrap().len(), 63);
    // Commits behind a damaged one do not count, even if they are intact.
    blocks[40][9] ^= 1;
    assert_eq!(changes(&blocks).unwrap().len(), 40);
    // A record that exceeds its block.
    blocks[40] = record(tag::PAD, &vec![0; 1020]);
    blocks[40][2..4].copy_from_slice(&1021_u16.to_le_bytes());
    assert_eq!(changes(&blocks).unwrap().len(), 40);
}
