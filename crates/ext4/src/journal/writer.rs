//! Journal writer: appends transactions to the ring, which a checkpoint empties.

use zerocopy::IntoBytes;

use super::layout::{
    BLOCK_TAIL_BYTES, BlockHeader, CommitHeader, JOURNAL_MAGIC, JournalCompat, JournalIncompat, RevokeHeader,
    TagFlags, block_type,
};
use super::{JournalArea, JournalSuperblock, Sums, Tag, TagForm};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::time;

/// Maximum size of one write.
const MAX_WRITE_BYTES: usize = 1 << 20;

/// A journal open for writing.
pub(crate) struct JournalWriter {
    log: JournalArea,
    superblock: JournalSuperblock,
    sums: Option<Sums>,
    form: TagForm,
    /// Next block to write.
    head: u32,
    /// Number of blocks before it that await a checkpoint.
    used: u32,
    /// Number of the next transaction.
    sequence: u32,
    /// Buffered blocks, and the journal block at which they start.
    gathered: Vec<u8>,
    gathered_at: u32,
}

impl JournalWriter {
    /// Creates a writer for a journal that needs no recovery; nothing is written before [`begin`](Self::begin). Enables the
    /// features that the kernel enables: `wide` (64-bit) block numbers, and `sums` (checksums) of version 3.
    pub(crate) fn open(log: JournalArea, wide: bool, sums: bool) -> Result<Self> {
        let mut superblock = log.superblock()?;
        if superblock.start != 0 {
            return Err(Error::Journal("it has not been replayed".into()));
        }
        let mut incompat = superblock.incompat | JournalIncompat::REVOKE;
        incompat.set(JournalIncompat::BIT64, wide || incompat.contains(JournalIncompat::BIT64));
        incompat -= JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3 | JournalIncompat::ASYNC_COMMIT;
        incompat.set(JournalIncompat::CSUM_V3, sums);
        superblock.set_features(superblock.compat - JournalCompat::CHECKSUM, incompat);
        // Skip one number, which leftovers of a crash may have.
        superblock.sequence = superblock.sequence.wrapping_add(1);
        superblock.start = superblock.first;
        superblock.errno = 0;
        Ok(Self {
            sums: Sums::of(incompat, &superblock.uuid),
            form: TagForm::of(incompat),
            head: superblock.first,
            used: 0,
            sequence: superblock.sequence,
            gathered: Vec::new(),
            gathered_at: superblock.first,
            log,
            superblock,
        })
    }

    /// Marks the journal as in use. The superblock of the file system must already have the recovery flag: e2fsck treats a
    /// journal in use without that flag as an error.
    pub(crate) fn begin(&mut self) -> Result<()> {
        self.set_superblock()
    }

    /// Creates a writer that appends another transaction to a journal that needs recovery.
    pub(crate) fn resume(log: JournalArea, superblock: &JournalSuperblock, end: u32, sequence: u32) -> Self {
        let size = superblock.end - superblock.first;
        Self {
            sums: Sums::of(superblock.incompat, &superblock.uuid),
            form: TagForm::of(superblock.incompat),
            head: end,
            used: (end + size - superblock.start) % size,
            sequence,
            gathered: Vec::new(),
            gathered_at: end,
            log,
            superblock: superblock.clone(),
        }
    }

    /// Number of blocks of the ring.
    fn size(&self) -> u32 {
        self.superblock.end - self.superblock.first
    }

    /// Maximum number of blocks that a transaction may change: a quarter of the ring, so that one transaction always fits while
    /// others await their checkpoint.
    pub(crate) fn largest_transaction(&self) -> u32 {
        self.size() / 4
    }

    fn revocations_per_block(&self) -> usize {
        let tail = if self.sums.is_some() { BLOCK_TAIL_BYTES } else { 0 };
        (self.log.block_size() as usize - size_of::<RevokeHeader>() - tail) / self.revocation()
    }

    /// Size of one revocation in bytes.
    fn revocation(&self) -> usize {
        if self.superblock.incompat.contains(JournalIncompat::BIT64) { 8 } else { 4 }
    }

    /// Reports whether a transaction with this number of blocks and revocations fits without a checkpoint.
    pub(crate) fn has_room(&self, blocks: usize, revoked: usize) -> bool {
        let descriptors = blocks.div_ceil(self.form.max_per_block(self.log.block_size() as usize));
        let needed = blocks + descriptors + revoked.div_ceil(self.revocations_per_block()) + 1;
        // One block stays free: a full ring would be indistinguishable from an empty one.
        needed < (self.size() - self.used) as usize
    }

    /// Number of bytes of transactions that await a checkpoint.
    pub(crate) fn waiting(&self) -> u64 {
        u64::from(self.used) * u64::from(self.log.block_size())
    }

    /// Writes a transaction. On return it is durable, as are earlier writes to the device of the file system.
    pub(crate) fn write<B: AsRef<[u8]>>(
        &mut self,
        device: &dyn Device,
        blocks: &[(u64, B)],
        revoked: &[u64],
    ) -> Result<()> {
        if !self.has_room(blocks.len(), revoked.len()) {
            return Err(Error::Journal(format!("{} blocks are too many for one transaction", blocks.len())));
        }
        for revoked in revoked.chunks(self.revocations_per_block()) {
            let block = self.revocations(revoked);
            self.put(&block)?;
        }
        let tags_per_block = self.form.max_per_block(self.log.block_size() as usize);
        for blocks in blocks.chunks(tags_per_block) {
            self.copies(blocks)?;
        }
        self.write_gathered()?;
        device.flush()?;
        if self.log.is_external() {
            self.log.device().flush()?;
        }
        let commit = self.commit_record();
        self.put(&commit)?;
        self.write_gathered()?;
        self.log.device().flush()?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// Empties the ring after a checkpoint of all transactions.
    pub(crate) fn empty(&mut self) -> Result<()> {
        self.used = 0;
        self.superblock.start = self.head;
        self.set_superblock()
    }

    /// Empties the ring like [`empty`](Self::empty), and marks the journal as needing no recovery.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.used = 0;
        self.superblock.start = 0;
        self.set_superblock()
    }

    /// Records an abort in the journal: recovery restores an older superblock of the file system, which does not record it.
    pub(crate) fn abort(&mut self) {
        // Always EIO, regardless of the reason.
        self.superblock.errno = 5;
        self.log.set_superblock(&self.superblock).and_then(|()| Ok(self.log.device().flush()?)).ok();
    }

    fn set_superblock(&mut self) -> Result<()> {
        self.superblock.sequence = self.sequence;
        self.log.set_superblock(&self.superblock)?;
        // Blocks that the superblock releases are overwritten next.
        Ok(self.log.device().flush()?)
    }

    fn block(&self, header: u32) -> Vec<u8> {
        let mut block = vec![0; self.log.block_size() as usize];
        let header = BlockHeader::new(header, self.sequence);
        block[..size_of::<BlockHeader>()].copy_from_slice(header.as_bytes());
        block
    }

    fn revocations(&self, revoked: &[u64]) -> Vec<u8> {
        let mut block = self.block(block_type::REVOKE);
        let (head, size) = (size_of::<RevokeHeader>(), self.revocation());
        let count = (head + revoked.len() * size) as u32;
        block[head - 4..head].copy_from_slice(&count.to_be_bytes());
        for (slot, number) in block[head..].chunks_exact_mut(size).zip(revoked) {
            slot.copy_from_slice(&number.to_be_bytes()[8 - size..]);
        }
        if let Some(sums) = self.sums {
            sums.seal_tail(&mut block);
        }
        block
    }

    /// Writes a descriptor and its logged blocks.
    fn copies<B: AsRef<[u8]>>(&mut self, blocks: &[(u64, B)]) -> Result<()> {
        let magic = JOURNAL_MAGIC.to_be_bytes();
        let escaped: Vec<Option<Vec<u8>>> = blocks
            .iter()
            .map(|(_, bytes)| bytes.as_ref())
            .map(|bytes| bytes.starts_with(&magic).then(|| [&[0; 4], &bytes[4..]].concat()))
            .collect();
        let copy = |index: usize| escaped[index].as_deref().unwrap_or(blocks[index].1.as_ref());
        let tags: Vec<Tag> = (0..blocks.len())
            .map(|index| Tag {
                block: blocks[index].0,
                flags: if escaped[index].is_some() { TagFlags::ESCAPE } else { TagFlags::empty() },
                sum: self.sums.map_or(0, |sums| sums.copy(self.sequence, copy(index))),
            })
            .collect();
        let mut descriptor = self.block(block_type::DESCRIPTOR);
        self.form.put(&mut descriptor, &self.superblock.uuid, &tags);
        if let Some(sums) = self.sums {
            sums.seal_tail(&mut descriptor);
        }
        self.put(&descriptor)?;
        (0..blocks.len()).try_for_each(|index| self.put(copy(index)))
    }

    fn commit_record(&self) -> Vec<u8> {
        let now = time::now();
        let record = CommitHeader {
            header: BlockHeader::new(block_type::COMMIT, self.sequence),
            chksum_type: 0,
            chksum_size: 0,
            padding: [0; 2],
            chksum: [0.into(); 8],
            commit_sec: (now.seconds as u64).into(),
            commit_nsec: now.nanoseconds.into(),
        };
        let mut block = vec![0; self.log.block_size() as usize];
        block[..size_of::<CommitHeader>()].copy_from_slice(record.as_bytes());
        if let Some(sums) = self.sums {
            sums.seal_commit(&mut block);
        }
        block
    }

    /// Appends a block at the head.
    fn put(&mut self, block: &[u8]) -> Result<()> {
        if self.gathered.is_empty() {
            self.gathered_at = self.head;
        }
        self.gathered.extend_from_slice(block);
        self.head = self.superblock.after(self.head);
        self.used += 1;
        if self.head == self.superblock.first || self.gathered.len() >= MAX_WRITE_BYTES {
            self.write_gathered()?;
        }
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<()> {
        if !self.gathered.is_empty() {
            self.log.write(self.gathered_at, &self.gathered)?;
            self.gathered.clear();
        }
        Ok(())
    }
}
