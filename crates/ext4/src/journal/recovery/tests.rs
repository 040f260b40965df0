//! Recovery of synthetic journals: formats that the kernel no longer writes, and invalid content.

use std::sync::Arc;

use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;
use crate::block_mapping::{MappedRange, Mapping};
use crate::device::{Event, MemoryDevice, Recorder};
use crate::error::Error;
use crate::journal::layout::{
    BlockHeader, CommitHeader, JournalCompat, RawJournalSuperblock, RevokeHeader, TagFlags, block_type,
};
use crate::journal::{Tag, TagForm, crc32_be};
use crate::layout::{Compat, Incompat, RoCompat};

const BLOCK: usize = 1024;
/// Number of blocks of the file system; the journal is at its end.
const BLOCKS: u64 = 2048;
const START: u64 = 1024;
const RING: u32 = 1024;

fn geometry() -> Geometry {
    Geometry {
        block_size: BLOCK as u32,
        block_bits: 10,
        blocks: BLOCKS,
        first_data_block: 1,
        blocks_per_group: 8192,
        cluster_blocks: 1,
        inodes_per_group: 512,
        inodes: 512,
        inode_size: 256,
        first_inode: 11,
        groups: 1,
        descriptor_size: 64,
        first_meta_bg: None,
        reserved_descriptors: 0,
        backup_groups: None,
        flex_bits: 0,
        compat: Compat::HAS_JOURNAL,
        incompat: Incompat::NEEDS_RECOVERY,
        ro_compat: RoCompat::empty(),
        checksum_seed: None,
        uuid: [0; 16],
        hash_seed: [0; 4],
        hash_version: 1,
        unsigned_hash: false,
    }
}

/// One step of a transaction.
#[derive(Debug, Clone)]
enum Step {
    /// Logged blocks, each with its fill byte; 0xc0 stands for a block that must be escaped.
    Copies(Vec<(u64, u8)>),
    Revoke(Vec<u64>),
}

fn content(byte: u8) -> Vec<u8> {
    let mut block = vec![byte; BLOCK];
    if byte == 0xc0 {
        block[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
    }
    block
}

struct Writer {
    bytes: Vec<u8>,
    superblock: JournalSuperblock,
    at: u32,
    sequence: u32,
    crc32: u32,
    time: u64,
}

impl Writer {
    fn new(compat: JournalCompat, incompat: JournalIncompat, start: u32, sequence: u32) -> Self {
        let mut raw = RawJournalSuperblock::read_from_bytes(&[0; 1024]).unwrap();
        raw.header = BlockHeader::new(block_type::SUPERBLOCK_V2, 0);
        raw.blocksize = (BLOCK as u32).into();
        raw.maxlen = RING.into();
        raw.first = 1.into();
        raw.start = start.into();
        raw.sequence = sequence.into();
        raw.uuid = [9; 16];
        let mut superblock = JournalSuperblock::parse(raw.as_bytes(), BLOCK as u32, RING).unwrap();
        superblock.set_features(compat, incompat);
        let bytes = vec![0; BLOCKS as usize * BLOCK];
        Self { bytes, superblock, at: start, sequence, crc32: !0, time: 1 }
    }

    fn put(&mut self, block: &[u8]) {
        let at = (START as usize + self.at as usize) * BLOCK;
        self.bytes[at..at + BLOCK].copy_from_slice(block);
        self.at = self.superblock.after(self.at);
    }

    fn sums(&self) -> Option<Sums> {
        Sums::of(self.superblock.incompat, &self.superblock.uuid)
    }

    fn step(&mut self, step: &Step) {
        let mut block = vec![0; BLOCK];
        match step {
            Step::Copies(copies) => {
                let form = TagForm::of(self.superblock.incompat);
                block[..12]
                    .copy_from_slice(BlockHeader::new(block_type::DESCRIPTOR, self.sequence).as_bytes());
                let (mut tags, mut blocks) = (Vec::new(), Vec::new());
                for &(number, byte) in copies {
                    let mut copy = content(byte);
                    let mut flags = TagFlags::empty();
                    if byte == 0xc0 {
                        copy[..4].fill(0);
                        flags = TagFlags::ESCAPE;
                    }
                    let sum = self.sums().map_or(0, |sums| sums.copy(self.sequence, &copy));
                    tags.push(Tag { block: number, flags, sum });
                    blocks.push(copy);
                }
                form.put(&mut block, &self.superblock.uuid, &tags);
                if let Some(sums) = self.sums() {
                    sums.seal_tail(&mut block);
                }
                for block in std::iter::once(block).chain(blocks) {
                    self.crc32 = crc32_be(self.crc32, &block);
                    self.put(&block);
                }
            }
            Step::Revoke(numbers) => {
                let size = if self.superblock.incompat.contains(JournalIncompat::BIT64) { 8 } else { 4 };
                let header = RevokeHeader {
                    header: BlockHeader::new(block_type::REVOKE, self.sequence),
                    count: (16 + (numbers.len() * size) as u32).into(),
                };
                block[..16].copy_from_slice(header.as_bytes());
                for (index, number) in numbers.iter().enumerate() {
                    let at = 16 + index * size;
                    block[at..at + size].copy_from_slice(&number.to_be_bytes()[8 - size..]);
                }
                if let Some(sums) = self.sums() {
                    sums.seal_tail(&mut block);
                }
                self.put(&block);
            }
        }
    }

    fn commit(&mut self) {
        let mut header = CommitHeader::read_from_bytes(&[0; 60]).unwrap();
        header.header = BlockHeader::new(block_type::COMMIT, self.sequence);
        header.commit_sec = self.time.into();
        if self.superblock.compat.contains(JournalCompat::CHECKSUM) {
            (header.chksum_type, header.chksum_size) = (1, 4);
            header.chksum[0] = self.crc32.into();
        }
        let mut block = vec![0; BLOCK];
        block[..60].copy_from_slice(header.as_bytes());
        if let Some(sums) = self.sums() {
            sums.seal_commit(&mut block);
        }
        self.put(&block);
        self.sequence = self.sequence.wrapping_add(1);
        self.crc32 = !0;
        self.time += 1;
    }

    fn transaction(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
        self.commit();
    }

    /// Recovers the journal; returns the result, the bytes of the file system, and the writes.
    fn replay(&self) -> (Result<Recovered>, Vec<u8>, Vec<Event>) {
        let device = Arc::new(Recorder::new(MemoryDevice::new(self.bytes.clone())));
        let map = |logical: u32, limit| {
            Ok(MappedRange { logical, length: limit, mapping: Mapping::Written(START + u64::from(logical)) })
        };
        let log = JournalArea::internal(device.clone(), 10, RING, map).unwrap();
        let (superblock, geometry) = (&self.superblock, &geometry());
        let recovery = Recovery { device: &*device, log: &log, superblock, geometry };
        let result = recovery.read().and_then(|found| recovery.write(&found));
        (result, device.device().bytes(), device.events())
    }

    fn fails(&self, why: &str) {
        let (result, _, events) = self.replay();
        let Err(Error::Corrupt(corruption)) = result else { panic!("{result:?}") };
        assert!(corruption.to_string().contains(why), "{corruption}");
        assert!(events.is_empty(), "something was written");
    }
}

fn block(bytes: &[u8], number: u64) -> &[u8] {
    &bytes[number as usize * BLOCK..][..BLOCK]
}

#[test]
fn every_journal_format_is_replayed() {
    use JournalIncompat as I;
    let none = JournalCompat::empty();
    let forms = [
        (none, I::REVOKE),
        (none, I::REVOKE | I::BIT64),
        (JournalCompat::CHECKSUM, I::REVOKE),
        (none, I::REVOKE | I::CSUM_V2),
        (none, I::REVOKE | I::CSUM_V2 | I::BIT64),
        (none, I::REVOKE | I::CSUM_V3),
        (none, I::REVOKE | I::CSUM_V3 | I::BIT64),
    ];
    for (compat, incompat) in forms {
        // The log starts near the end of the ring, with transaction numbers close to wrapping around.
        let mut writer = Writer::new(compat, incompat, RING - 6, u32::MAX - 1);
        writer.transaction(&[Step::Copies(vec![(10, 1), (11, 0xc0), (12, 3), (13, 4)])]);
        writer.transaction(&[Step::Copies(vec![(10, 5), (14, 6)]), Step::Copies(vec![(15, 7)])]);
        writer.transaction(&[Step::Revoke(vec![12, 14]), Step::Copies(vec![(16, 8), (13, 9)])]);
        // A block may be logged again after it was revoked.
        writer.transaction(&[Step::Copies(vec![(14, 10)])]);
        // An uncommitted transaction.
        writer.step(&Step::Copies(vec![(10, 99), (17, 99)]));
        let (result, bytes, events) = writer.replay();
        let expected = Recovered { transactions: 4, blocks: 6, fast_changes: 0, next: 2 };
        assert_eq!(result.unwrap(), expected, "{compat:?} {incompat:?}");
        assert_eq!(events.len(), 6);
        let blocks = [(10, 5), (11, 0xc0), (12, 0), (13, 9), (14, 10), (15, 7), (16, 8), (17, 0)];
        for (number, byte) in blocks {
            assert!(block(&bytes, number) == content(byte), "block {number}: {compat:?} {incompat:?}");
        }
    }
}

fn v3() -> Writer {
    let features = JournalIncompat::REVOKE | JournalIncompat::CSUM_V3 | JournalIncompat::BIT64;
    Writer::new(JournalCompat::empty(), features, 1, 7)
}

#[test]
fn copies_outside_the_file_system_or_in_the_journal_are_refused() {
    for (number, why) in [
        (BLOCKS, "not of this file system"),
        (u64::MAX, "not of this file system"),
        (0, "not of this file system"),
        (START, "the journal's own"),
        (BLOCKS - 1, "the journal's own"),
    ] {
        let mut writer = v3();
        writer.transaction(&[Step::Copies(vec![(10, 1)])]);
        writer.transaction(&[Step::Copies(vec![(11, 1), (number, 2)])]);
        writer.fails(why);
    }
}

#[test]
fn ring_without_end_is_an_error() {
    let mut writer = Writer::new(JournalCompat::empty(), JournalIncompat::REVOKE, 1, 7);
    (0..RING).for_each(|_| writer.step(&Step::Revoke(vec![10])));
    writer.fails("have no end");
    // A ring full of descriptors.
    let mut writer = Writer::new(JournalCompat::empty(), JournalIncompat::REVOKE, 1, 7);
    for copies in [100; 10].into_iter().chain([12]) {
        writer.step(&Step::Copies((0..copies).map(|n| (n + 10, 1)).collect()));
    }
    writer.fails("have no end");
}

#[test]
fn invalid_revocations_are_reported() {
    let mut writer = Writer::new(JournalCompat::empty(), JournalIncompat::REVOKE, 1, 7);
    writer.transaction(&[Step::Copies(vec![(10, 1)]), Step::Revoke(vec![11])]);
    let at = (START as usize + 3) * BLOCK + 12;
    for count in [0_u32, 15, 1025, u32::MAX] {
        writer.bytes[at..at + 4].copy_from_slice(&count.to_be_bytes());
        writer.fails("bytes of revocations");
    }
}

/// Damages one byte of a journal block.
fn damage(writer: &mut Writer, at: u32, byte: usize) {
    writer.bytes[(START as usize + at as usize) * BLOCK + byte] ^= 0x10;
}

#[test]
fn corrupt_commit_is_an_error_and_torn_tail_ends_the_log() {
    let make = |features: JournalIncompat| {
        let mut writer = v3();
        writer.superblock.set_features(JournalCompat::empty(), writer.superblock.incompat | features);
        writer.transaction(&[Step::Copies(vec![(10, 1), (11, 2)])]); // 1 2 3, 4
        writer.transaction(&[Step::Copies(vec![(12, 3), (11, 4)])]); // 5 6 7, 8
        writer
    };
    let sane = make(JournalIncompat::empty());
    assert_eq!(sane.replay().0.unwrap().transactions, 2);
    for (at, why) in [(1, "transaction 7"), (2, "transaction 7"), (4, "transaction 7"), (6, "transaction 8")]
    {
        let mut writer = make(JournalIncompat::empty());
        damage(&mut writer, at, 500);
        writer.fails(why);
    }
    // Block 11 is replayed from the second transaction: its first copy is never read.
    let mut writer = make(JournalIncompat::empty());
    damage(&mut writer, 3, 500);
    assert_eq!(writer.replay().0.unwrap().transactions, 2);
    // A torn commit record does not count.
    let mut writer = make(JournalIncompat::empty());
    damage(&mut writer, 8, 500);
    let (result, bytes, _) = writer.replay();
    assert_eq!(result.unwrap().transactions, 1);
    assert_eq!([block(&bytes, 11)[9], block(&bytes, 12)[9]], [2, 0]);
    // Neither does an asynchronous commit whose blocks are missing.
    let mut writer = make(JournalIncompat::ASYNC_COMMIT);
    damage(&mut writer, 7, 500);
    let (result, bytes, _) = writer.replay();
    assert_eq!(result.unwrap().transactions, 1);
    assert_eq!([block(&bytes, 11)[9], block(&bytes, 12)[9]], [2, 0]);
    let mut writer = make(JournalIncompat::ASYNC_COMMIT);
    damage(&mut writer, 2, 500);
    writer.fails("transaction 7");
}

#[test]
fn stale_blocks_end_the_log() {
    let mut writer = v3();
    writer.transaction(&[Step::Copies(vec![(10, 1)])]);
    // A transaction left by an older journal: its number fits, but it was committed earlier and under another UUID.
    writer.superblock.uuid = [1; 16];
    writer.time = 0;
    writer.transaction(&[Step::Copies(vec![(11, 2)])]);
    writer.superblock.uuid = [9; 16];
    assert_eq!(
        writer.replay().0.unwrap(),
        Recovered { transactions: 1, blocks: 1, fast_changes: 0, next: 8 }
    );
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let number = 1_u64..40;
    let copies = proptest::collection::btree_map(number.clone(), 1_u8.., 1..12)
        .prop_map(|copies| Step::Copies(copies.into_iter().collect()));
    let revoke = proptest::collection::vec(number, 1..8).prop_map(Step::Revoke);
    let transaction = proptest::collection::vec(prop_oneof![3 => copies, 1 => revoke], 1..5);
    proptest::collection::vec(transaction, 1..12)
}

proptest! {
    #[test]
    fn agrees_with_the_plain_definition(transactions in steps(), start in 1..RING) {
        let mut writer = v3();
        (writer.superblock.start, writer.at) = (start, start);
        // Model: logged blocks in order, without those revoked by their own or a later transaction.
        let mut model = std::collections::BTreeMap::new();
        for (index, steps) in transactions.iter().enumerate() {
            writer.transaction(steps);
            for step in steps {
                if let Step::Copies(copies) = step {
                    for &(number, byte) in copies {
                        let revoked = transactions[index..].iter().flatten().any(
                            |step| matches!(step, Step::Revoke(numbers) if numbers.contains(&number)),
                        );
                        if !revoked {
                            model.insert(number, byte);
                        }
                    }
                }
            }
        }
        let (result, bytes, _) = writer.replay();
        prop_assert_eq!(result.unwrap().transactions as usize, transactions.len());
        for number in 1..40 {
            let byte = model.get(&number).copied().unwrap_or(0);
            prop_assert!(block(&bytes, number) == content(byte), "block {}", number);
        }
    }

    #[test]
    fn damage_never_leads_a_write_astray(
        transactions in steps(),
        sums in any::<bool>(),
        changes in proptest::collection::vec((1_usize..60, 0_usize..48, any::<u8>()), 1..10),
    ) {
        let mut writer = v3();
        if !sums {
            writer.superblock.set_features(JournalCompat::empty(), JournalIncompat::REVOKE);
        }
        transactions.iter().for_each(|steps| writer.transaction(steps));
        for (at, byte, value) in changes {
            writer.bytes[(START as usize + at) * BLOCK + byte] = value;
        }
        let (result, bytes, events) = writer.replay();
        prop_assert!(result.is_ok() || events.is_empty());
        let journal = START as usize * BLOCK..;
        prop_assert!(bytes[..BLOCK].iter().all(|&byte| byte == 0));
        prop_assert!(bytes[journal.clone()] == writer.bytes[journal]);
    }
}
