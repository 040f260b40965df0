//! What a journal holds: one walk over the ring from its start, which changes nothing.

use std::collections::BTreeMap;

use zerocopy::FromBytes;

use crate::error::{Corruption, Result};
use crate::journal::fast_commit::Change;
use crate::journal::layout::{
    BlockHeader, CommitHeader, JOURNAL_MAGIC, JournalCompat, TagFlags, block_type, checksum_type,
};
use crate::journal::{JournalArea, JournalSuperblock, Sums, TagForm, crc32_be, is_after};

/// The newest copy of a block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Copy {
    /// Block of the journal.
    pub(super) at: u32,
    pub(super) sequence: u32,
    pub(super) escaped: bool,
    /// As its tag has it.
    pub(super) sum: u32,
}

/// What is to be recovered.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The newest copy of each block, by its place in the file system.
    pub(super) copies: BTreeMap<u64, Copy>,
    /// Blocks of revocations, with their transaction.
    pub(super) revocations: Vec<(u32, u32)>,
    /// Transactions.
    pub(super) transactions: u32,
    /// The number of the transaction that would come next.
    pub(crate) next: u32,
    /// There is a whole copy of the superblock.
    pub(super) superblock: bool,
    /// Where the last one ends in the ring.
    pub(crate) end: u32,
    /// Changes told by fast commits behind it.
    pub(crate) fast: Vec<Change>,
}

impl Found {
    /// The superblock is whole after recovery, whatever it is before.
    pub(crate) fn has_superblock(&self) -> bool {
        self.superblock
    }
}

/// The transaction that is being read. It counts when its commit record is found.
struct Open {
    tags: Vec<(u64, Copy)>,
    revocations: Vec<u32>,
    /// The sum of version 1.
    crc32: u32,
    /// A sum of version 2 or 3 is wrong: of one that was committed, or of remains of another age of the journal.
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
    /// Blocks of the ring that were not seen yet. A ring has an end, whatever it says.
    left: u32,
    block: Vec<u8>,
}

/// What a commit record says of its transaction.
enum Verdict {
    Complete,
    /// Never committed, or of another age of the journal: the log ends before it.
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

    /// Walks the ring. Transactions from `until` on are not looked at.
    pub(super) fn run(mut self, until: Option<u32>) -> Result<Found> {
        let mut found =
            Found { next: self.superblock.sequence, end: self.superblock.start, ..Found::default() };
        let mut open = Open::new();
        let mut last_time = (0, 0);
        let mut at = self.superblock.start;
        while until != Some(found.next) && self.read(at)? {
            let Some(blocktype) = self.type_of(found.next) else { break };
            let here = at;
            at = self.superblock.after(at);
            match blocktype {
                block_type::DESCRIPTOR => at = self.descriptor(here, at, found.next, &mut open)?,
                block_type::REVOKE => {
                    if self.sums.is_some_and(|sums| !sums.tail_is_right(&self.block)) {
                        open.wrong.get_or_insert(here);
                    }
                    open.revocations.push(here);
                }
                block_type::COMMIT => {
                    let commit = self.commit_header();
                    let time = (commit.commit_sec.get(), commit.commit_nsec.get());
                    match self.judge(here, &commit, time, last_time, found.next, &open)? {
                        Verdict::Complete => {}
                        Verdict::Torn(why) => {
                            tracing::info!("journal: transaction {} was not completed: {why}", found.next);
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

    /// Reads a block of the ring; `false` where all of them were seen.
    fn read(&mut self, at: u32) -> Result<bool> {
        let Some(left) = self.left.checked_sub(1) else {
            return Err(Corruption::new("journal: transactions fill the whole ring, and have no end").into());
        };
        self.left = left;
        self.log.read(at, &mut self.block)?;
        Ok(true)
    }

    /// The type of the block just read; `None` where it is not the journal's, or not of this transaction.
    fn type_of(&self, sequence: u32) -> Option<u32> {
        let (header, _) = BlockHeader::read_from_prefix(&self.block).ok()?;
        let is_ours = header.magic.get() == JOURNAL_MAGIC && header.sequence.get() == sequence;
        is_ours.then(|| header.blocktype.get())
    }

    fn commit_header(&self) -> CommitHeader {
        CommitHeader::read_from_prefix(&self.block).expect("a block is longer").0
    }

    /// Takes the tags of a descriptor, and goes past the copies behind it.
    fn descriptor(&mut self, here: u32, mut at: u32, sequence: u32, open: &mut Open) -> Result<u32> {
        if self.sums.is_some_and(|sums| !sums.tail_is_right(&self.block)) {
            open.wrong.get_or_insert(here);
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

    /// Whether a transaction whose commit record was just read is complete.
    fn judge(
        &mut self,
        here: u32,
        commit: &CommitHeader,
        time: (u64, u32),
        last_time: (u64, u32),
        sequence: u32,
        open: &Open,
    ) -> Result<Verdict> {
        let damaged = if let Some(sums) = self.sums {
            if time < last_time && (open.wrong.is_some() || !sums.commit_is_right(&self.block)) {
                return Ok(Verdict::Torn("its blocks are of another age"));
            }
            if !sums.commit_is_right(&self.block) {
                Some(here)
            } else if let Some(wrong) = open.wrong {
                return Err(wrong_sum(wrong, sequence));
            } else {
                None
            }
        } else if self.superblock.compat.contains(JournalCompat::CHECKSUM) {
            let stored = commit.chksum[0].get();
            let (kind, size) = (commit.chksum_type, commit.chksum_size);
            let right = kind == checksum_type::CRC32 && size == 4 && stored == open.crc32;
            // Who turns sums on leaves older transactions without.
            let none = kind == 0 && size == 0 && stored == 0;
            (!right && !none).then_some(here)
        } else {
            None
        };
        let Some(damaged) = damaged else { return Ok(Verdict::Complete) };
        // A cut while the record was written leaves it at the very end of the log. With a transaction behind it that was
        // begun later, it was once complete.
        let next = self.superblock.after(here);
        if self.left > 0 {
            self.log.read(next, &mut self.block)?;
            if self.type_of(sequence.wrapping_add(1)).is_some() {
                return Err(wrong_sum(damaged, sequence));
            }
        }
        Ok(Verdict::Torn("its checksum is wrong"))
    }

    /// Forgets the copies that were revoked later, or by their own transaction.
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
