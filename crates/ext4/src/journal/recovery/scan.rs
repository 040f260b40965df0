//! Scan pass of recovery: one read-only pass over the ring, from its start to the last complete transaction.

use std::collections::BTreeMap;

use zerocopy::FromBytes;

use crate::error::{Corruption, Result};
use crate::journal::fast_commit::Change;
use crate::journal::layout::{
    BlockHeader, CommitHeader, JOURNAL_MAGIC, JournalCompat, TagFlags, block_type, checksum_type,
};
use crate::journal::{JournalArea, JournalSuperblock, Sums, TagForm, crc32_be, is_after};

/// The newest logged version of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    /// Block number within the journal.
    pub(super) at: u32,
    pub(super) sequence: u32,
    pub(super) escaped: bool,
    /// Checksum from its tag.
    pub(super) sum: u32,
}

/// Result of the scan: the changes to recover.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Newest version of each block, by file system block number.
    pub(super) copies: BTreeMap<u64, Copy>,
    /// Revoke blocks, each with its transaction.
    pub(super) revocations: Vec<(u32, u32)>,
    /// Number of transactions.
    pub(super) transactions: u32,
    /// Number of the transaction that would follow.
    pub(crate) next: u32,
    /// An intact superblock is among the logged blocks.
    pub(super) superblock: bool,
    /// Position in the ring behind the last transaction.
    pub(crate) end: u32,
    /// Changes in fast commits behind the last transaction.
    pub(crate) fast: Vec<Change>,
}

impl Found {
    /// Reports whether recovery yields an intact superblock, regardless of its current state.
    pub(crate) fn has_superblock(&self) -> bool {
        self.superblock
    }
}

/// The transaction being read. It is valid only if its commit record is found.
struct Open {
    tags: Vec<(u64, Copy)>,
    revocations: Vec<u32>,
    /// Running checksum of version 1.
    crc32: u32,
    /// First block with a wrong checksum of version 2 or 3: damage if the transaction was committed, else leftovers of earlier
    /// use.
    wrong: Option<u32>,
}

impl Open {
    fn new() -> Self {
        Self { tags: Vec::new(), revocations: Vec::new(), crc32: !0, wrong: None }
    }
}

pub(super) struct Scan<'a> {
    log: &'a JournalArea,
    superblock: &'a JournalSuperblock,
    sums: Option<Sums>,
    form: TagForm,
    /// Number of blocks of the ring not read yet; bounds the scan of a forged ring.
    left: u32,
    block: Vec<u8>,
}

/// State of a transaction according to its commit record.
enum Verdict {
    Complete,
    /// Never committed, or left over from earlier use of the journal: the log ends before it.
    Torn(&'static str),
}

impl<'a> Scan<'a> {
    pub(super) fn new(log: &'a JournalArea, superblock: &'a JournalSuperblock) -> Self {
        Self {
            log,
            superblock,
            sums: Sums::of(superblock.incompat, &superblock.uuid),
            form: TagForm::of(superblock.incompat),
            left: superblock.end - superblock.first,
            block: vec![0; log.block_size() as usize],
        }
    }

    /// Scans the ring, up to but excluding transaction `until`.
    pub(super) fn run(mut self, until: Option<u32>) -> Result<Found> {
        let mut found =
            Found { next: self.superblock.sequence, end: self.superblock.start, ..Found::default() };
        let mut open = Open::new();
        let mut last_time = (0, 0);
        let mut at = self.superblock.start;
        while until != Some(found.next) && self.read(at)? {
            let Some(blocktype) = self.type_of(found.next) else { break };
            let block = at;
            at = self.superblock.after(at);
            match blocktype {
                block_type::DESCRIPTOR => at = self.descriptor(block, at, found.next, &mut open)?,
                block_type::REVOKE => {
                    if self.sums.is_some_and(|sums| !sums.is_tail_valid(&self.block)) {
                        open.wrong.get_or_insert(block);
                    }
                    open.revocations.push(block);
                }
                block_type::COMMIT => {
                    let commit = self.commit_header();
                    let time = (commit.commit_sec.get(), commit.commit_nsec.get());
                    match self.check_commit(block, &commit, time, last_time, found.next, &open)? {
                        Verdict::Complete => {}
                        Verdict::Torn(reason) => {
                            tracing::info!(
                                "journal: transaction {} is incomplete and is not replayed: {reason}",
                                found.next
                            );
                            break;
                        }
                    }
                    last_time = time;
                    let open = std::mem::replace(&mut open, Open::new());
                    let sequence = found.next;
                    found.copies.extend(open.tags);
                    found.revocations.extend(open.revocations.into_iter().map(|at| (at, sequence)));
                    found.transactions += 1;
                    found.next = sequence.wrapping_add(1);
                    found.end = at;
                }
                _ => break,
            }
        }
        self.revoke(&mut found)?;
        Ok(found)
    }

    /// Reads a block of the ring; fails if all blocks have been read.
    fn read(&mut self, at: u32) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(
                Corruption::new("journal: the transactions fill the whole log and have no end").into()
            );
        };
        self.left = left;
        self.log.read(at, &mut self.block)?;
        Ok(true)
    }

    /// Returns the type of the block just read; `None` if it is not a journal block of this transaction.
    fn type_of(&self, sequence: u32) -> Option<u32> {
        let (header, _) = BlockHeader::read_from_prefix(&self.block).ok()?;
        let is_valid = header.magic.get() == JOURNAL_MAGIC && header.sequence.get() == sequence;
        is_valid.then(|| header.blocktype.get())
    }

    fn commit_header(&self) -> CommitHeader {
        CommitHeader::read_from_prefix(&self.block).expect("a block is longer than a commit header").0
    }

    /// Collects the tags of a descriptor, and skips the logged blocks behind it.
    fn descriptor(&mut self, block: u32, mut at: u32, sequence: u32, open: &mut Open) -> Result<u32> {
        if self.sums.is_some_and(|sums| !sums.is_tail_valid(&self.block)) {
            open.wrong.get_or_insert(block);
        }
        let version_1 = self.superblock.compat.contains(JournalCompat::CHECKSUM);
        if version_1 {
            open.crc32 = crc32_be(open.crc32, &self.block);
        }
        let tags: Vec<_> = self.form.tags(&self.block).collect();
        for tag in tags {
            if version_1 {
                self.read(at)?;
                open.crc32 = crc32_be(open.crc32, &self.block);
            } else {
                let Some(left) = self.left.checked_sub(1) else { break };
                self.left = left;
            }
            let escaped = tag.flags.contains(TagFlags::ESCAPE);
            open.tags.push((tag.block, Copy { at, sequence, escaped, sum: tag.sum }));
            at = self.superblock.after(at);
        }
        Ok(at)
    }

    /// Decides whether the transaction whose commit record was just read is complete.
    fn check_commit(
        &mut self,
        block: u32,
        commit: &CommitHeader,
        time: (u64, u32),
        last_time: (u64, u32),
        sequence: u32,
        open: &Open,
    ) -> Result<Verdict> {
        let damaged = if let Some(sums) = self.sums {
            if time < last_time && (open.wrong.is_some() || !sums.is_commit_valid(&self.block)) {
                return Ok(Verdict::Torn("its blocks are older than its commit block"));
            }
            if !sums.is_commit_valid(&self.block) {
                Some(block)
            } else if let Some(wrong) = open.wrong {
                return Err(wrong_sum(wrong, sequence));
            } else {
                None
            }
        } else if self.superblock.compat.contains(JournalCompat::CHECKSUM) {
            let stored = commit.chksum[0].get();
            let (kind, size) = (commit.chksum_type, commit.chksum_size);
            let right = kind == checksum_type::CRC32 && size == 4 && stored == open.crc32;
            // Transactions from before checksums were enabled have none.
            let none = kind == 0 && size == 0 && stored == 0;
            (!right && !none).then_some(block)
        } else {
            None
        };
        let Some(damaged) = damaged else { return Ok(Verdict::Complete) };
        // A commit record torn by a crash is at the very end of the log. If a later transaction follows, the record was once
        // complete, and has been damaged since.
        let next = self.superblock.after(block);
        if self.left > 0 {
            self.log.read(next, &mut self.block)?;
            if self.type_of(sequence.wrapping_add(1)).is_some() {
                return Err(wrong_sum(damaged, sequence));
            }
        }
        Ok(Verdict::Torn("wrong checksum"))
    }

    /// Drops the blocks that were revoked by the same or a later transaction.
    fn revoke(&mut self, found: &mut Found) -> Result<()> {
        for &(at, sequence) in &found.revocations {
            self.log.read(at, &mut self.block)?;
            for block in super::revoked::blocks(&self.block, self.superblock.incompat)
                .map_err(|corruption| of_journal(at, corruption))?
            {
                if found.copies.get(&block).is_some_and(|copy| !is_after(copy.sequence, sequence)) {
                    found.copies.remove(&block);
                }
            }
        }
        Ok(())
    }
}

pub(super) fn wrong_sum(at: u32, sequence: u32) -> crate::error::Error {
    of_journal(at, Corruption::new(format!("wrong checksum in transaction {sequence}"))).into()
}

fn of_journal(at: u32, corruption: Corruption) -> Corruption {
    Corruption::new(format!("journal block {at}: {}", corruption.what))
}
