//! READDIR and READDIRPLUS of replica and history directories.
//!
//! Names are listed in sorted order, and a listing continues after the last name returned, so concurrent creates and removals
//! shift nothing. A program may also seek back to an offset, which is a number; so the names at some offsets are kept.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use shunt_fuse::{DirectoryBuffer, DirectoryPlusBuffer, Errno, FileHandle, FileType, NodeId};
use shunt_volume::replica::{DirEntry, Replica};

use crate::errseq::ErrSeq;
use crate::history::is_historic;
use crate::{VolumeFs, convert};

/// Number of names fetched at once.
const PAGE_NAMES: usize = 128;

/// Offsets of `.` and `..`, which precede the names.
const DOT_ENTRIES: u64 = 2;

/// An open directory with the names at some offsets.
pub(crate) struct OpenDirectory {
    positions: Mutex<Positions>,
    pub(crate) errseq: ErrSeq,
}

impl OpenDirectory {
    pub(crate) fn new(replica: &Replica) -> Self {
        Self { positions: Mutex::default(), errseq: ErrSeq::new(replica) }
    }

    /// A directory that was open in an earlier daemon, with the names before some offsets.
    pub(crate) fn resumed(replica: &Replica, known: Vec<(u64, Vec<u8>)>) -> Self {
        let positions = Positions { recent: known.into_iter().collect(), ..Positions::default() };
        Self { positions: Mutex::new(positions), errseq: ErrSeq::new(replica) }
    }
}

#[derive(Default)]
struct Positions {
    /// Names at every 256th offset, kept until the close.
    checkpoints: BTreeMap<u64, Vec<u8>>,
    /// Names of the last replies, each by the offset after it.
    recent: BTreeMap<u64, Vec<u8>>,
}

/// Number of offsets kept from the last replies.
const MAX_RECENT_POSITIONS: usize = 1024;

impl Positions {
    fn record(&mut self, position: u64, name: &[u8]) {
        if position.is_multiple_of(256) {
            self.checkpoints.insert(position, name.to_vec());
        }
        self.recent.insert(position, name.to_vec());
        if self.recent.len() > MAX_RECENT_POSITIONS {
            self.recent.pop_first();
        }
    }
}

trait ListingBuffer {
    fn dot(&mut self, name: &[u8], ino: u64, next: u64) -> bool;
    /// Adds an entry. Returns false if there is no room.
    fn push(&mut self, volume: &VolumeFs, listed: &DirEntry, applied: u64, next: u64) -> bool;
}

impl ListingBuffer for DirectoryBuffer {
    fn dot(&mut self, name: &[u8], ino: u64, next: u64) -> bool {
        DirectoryBuffer::push(self, name, ino, FileType::Directory, next)
    }

    fn push(&mut self, _volume: &VolumeFs, listed: &DirEntry, _applied: u64, next: u64) -> bool {
        let kind = convert::file_type(listed.inode.kind);
        DirectoryBuffer::push(self, &listed.name, listed.inode.ino, kind, next)
    }
}

impl ListingBuffer for DirectoryPlusBuffer {
    fn dot(&mut self, name: &[u8], ino: u64, next: u64) -> bool {
        self.push_name(name, ino, FileType::Directory, next)
    }

    fn push(&mut self, volume: &VolumeFs, listed: &DirEntry, applied: u64, next: u64) -> bool {
        // The lookup count is incremented only for entries that fit.
        if !self.has_room_for(&listed.name) {
            return false;
        }
        let entry = match is_historic(NodeId(listed.inode.ino)) {
            true => volume.historic_entry(&listed.inode),
            false => volume.entry(&listed.inode, applied),
        };
        DirectoryPlusBuffer::push(self, &listed.name, &entry, next)
    }
}

impl VolumeFs {
    pub(crate) fn list_names(
        &self,
        ino: NodeId,
        (handle, open): (FileHandle, &OpenDirectory),
        offset: u64,
        out: &mut DirectoryBuffer,
    ) -> Result<(), Errno> {
        self.list(ino.0, (handle, open), offset, out)
    }

    pub(crate) fn list_entries(
        &self,
        ino: NodeId,
        (handle, open): (FileHandle, &OpenDirectory),
        offset: u64,
        out: &mut DirectoryPlusBuffer,
    ) -> Result<(), Errno> {
        self.list(ino.0, (handle, open), offset, out)
    }

    fn list(
        &self,
        num: u64,
        (handle, open): (FileHandle, &OpenDirectory),
        offset: u64,
        out: &mut impl ListingBuffer,
    ) -> Result<(), Errno> {
        let serving = self.succession.as_ref().map(|succession| &succession.serving);
        if offset == 0 && !out.dot(b".", num, 1) {
            return Ok(());
        }
        if offset <= 1 {
            let parent = self.replica.parent(num).map_or(num, |parent| parent.ino);
            if !out.dot(b"..", parent, DOT_ENTRIES) {
                return Ok(());
            }
        }
        let mut positions = open.positions.lock();
        if offset == 0 {
            *positions = Positions::default();
            if let Some(serving) = serving {
                serving.begin_listing(handle);
            }
        }
        let (mut position, mut after) = self.find_position(num, &positions, offset.max(DOT_ENTRIES))?;
        loop {
            let applied = self.replica.applied();
            let page = self.page(num, &after, PAGE_NAMES)?;
            for listed in &page {
                if !out.push(self, listed, applied, position + 1) {
                    // The listing most likely continues here.
                    if let (Some(serving), Some(name)) = (serving, positions.recent.get(&position)) {
                        serving.add_position(handle, position, name);
                    }
                    return Ok(());
                }
                position += 1;
                positions.record(position, &listed.name);
            }
            match page.last() {
                Some(last) if page.len() == PAGE_NAMES => after.clone_from(&last.name),
                _ => return Ok(()),
            }
        }
    }

    /// Returns the name before an offset: the nearest known one, advanced from there.
    fn find_position(&self, num: u64, positions: &Positions, target: u64) -> Result<(u64, Vec<u8>), Errno> {
        let nearest = |names: &BTreeMap<u64, Vec<u8>>| {
            names.range(..=target).next_back().map(|(position, name)| (*position, name.clone()))
        };
        let known = nearest(&positions.checkpoints).max(nearest(&positions.recent));
        let (mut position, mut after) = known.unwrap_or((DOT_ENTRIES, Vec::new()));
        while position < target {
            let skipped = usize::try_from(target - position).unwrap_or(PAGE_NAMES).min(PAGE_NAMES);
            let page = self.page(num, &after, skipped)?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            position += page.len() as u64;
        }
        Ok((position.max(target), after))
    }
}
