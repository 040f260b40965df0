//! Takeover: another daemon continues after this one was killed.
//!
//! The engine keeps [shadow copies](shunt_ext4::SharedMemory) of uncommitted changes in a memory file that the guardian holds,
//! and a second memory file has the lookup counts: without them an unlinked file that is still open would be freed. Node ids
//! are inode numbers, and handles carry their own state, so nothing else is lost but pending access times (`lazytime`) and
//! failures of write-back that no program has seen yet; the kernel reports those at fsync.
//!
//! Changes that must not be executed twice run [`once`](Ext4::once): the engine publishes their outcome together with the change.

mod lookups;
mod thread_slots;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use shunt_ext4::{MAX_OPERATIONS, Operation, Outcome, SHADOW_WORDS, SharedMemory, UNNAMED};
use shunt_fuse::takeover::{Map, OpenRecord};
use shunt_fuse::{Errno, Handle, Request};

use crate::Ext4;
use crate::opens::{ACCMODE, WRONLY};
pub(crate) use lookups::LookupMemory;
use thread_slots::ThreadSlots;

/// The memory files that a daemon leaves to its successor. Both daemons pass them to [`Ext4::with_takeover`].
#[derive(Debug)]
pub struct TakeoverMemory {
    changes: Arc<Map>,
    lookups: Arc<LookupMemory>,
}

impl TakeoverMemory {
    /// Makes the memory for a file system with this many inodes. Its pages are allocated on use.
    ///
    /// # Errors
    /// No descriptor or no address space is available.
    pub fn create(inodes: u32) -> io::Result<Self> {
        let changes = Map::create(SHADOW_WORDS)?;
        Ok(Self { changes: Arc::new(changes), lookups: Arc::new(LookupMemory::create(inodes)?) })
    }

    /// Opens the memory that an earlier daemon made, from its two [descriptors](Self::descriptors).
    ///
    /// # Errors
    /// A file is of the wrong size, or not sealed.
    pub fn open(changes: OwnedFd, lookups: OwnedFd) -> io::Result<Self> {
        let changes = Map::open(changes, SHADOW_WORDS)?;
        Ok(Self { changes: Arc::new(changes), lookups: Arc::new(LookupMemory::open(lookups)?) })
    }

    /// Returns the descriptors of the memory files, for the guardian.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.changes.as_fd(), self.lookups.as_fd()]
    }

    /// Returns the memory for the engine: see [`Filesystem::open_resumable`](shunt_ext4::Filesystem::open_resumable).
    pub fn changes(&self) -> SharedMemory {
        self.changes.clone()
    }
}

/// The state of takeovers in a daemon.
#[derive(Debug)]
pub(crate) struct Resumable {
    lookups: Arc<LookupMemory>,
    slots: ThreadSlots,
    /// Values by request: what an earlier daemon completed.
    completed: Mutex<HashMap<u64, u64>>,
    /// Inodes for which an earlier daemon made an unnamed file. Until the request is sent again nothing refers to them.
    unnamed: Vec<u32>,
}

impl Resumable {
    pub(crate) fn new(memory: &TakeoverMemory, outcomes: &[Outcome]) -> Self {
        let taken = outcomes.iter().map(|outcome| outcome.slot);
        let unnamed = outcomes.iter().filter(|outcome| outcome.age == 1 && outcome.value & UNNAMED != 0);
        Self {
            lookups: memory.lookups.clone(),
            slots: ThreadSlots::new(MAX_OPERATIONS, taken),
            completed: Mutex::new(outcomes.iter().map(|outcome| (outcome.request, outcome.value)).collect()),
            unnamed: unnamed.map(|outcome| outcome.value as u32).collect(),
        }
    }

    fn operation(&self, request: &Request<'_>) -> Option<Operation> {
        let number = request.first_id();
        let earlier = if request.is_resend() { self.completed.lock().get(&number).copied() } else { None };
        Some(Operation { request: number, slot: self.slots.of_thread()?, earlier })
    }
}

impl Ext4 {
    /// Continues the mount of an earlier daemon, or prepares that a later one continues. `outcomes` are those of
    /// [`Filesystem::resume`](shunt_ext4::Filesystem::resume).
    pub fn with_takeover(mut self, memory: &TakeoverMemory, outcomes: &[Outcome]) -> Self {
        self.lookup_counts.keep_in(memory.lookups.clone());
        self.resumable = Some(Resumable::new(memory, outcomes));
        self
    }

    /// Runs a change that must not be executed twice. If an earlier daemon completed it, and recorded `value`, `again(value)`
    /// makes the reply instead. The caller replies without waiting for anything else.
    pub(crate) fn once<T>(
        &self,
        request: &Request<'_>,
        run: impl FnOnce() -> Result<T, Errno>,
        again: impl FnOnce(u64) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match self.resumable.as_ref().and_then(|resumable| resumable.operation(request)) {
            None => run(),
            Some(Operation { earlier: Some(value), .. }) => again(value),
            Some(operation) => self.filesystem.run_as(operation, run),
        }
    }

    /// Runs a change that consists of several, and that continues where an earlier daemon ended.
    pub(crate) fn in_steps<T>(&self, request: &Request<'_>, run: impl FnOnce() -> T) -> T {
        match self.resumable.as_ref().and_then(|resumable| resumable.operation(request)) {
            None => run(),
            Some(operation) => self.filesystem.run_as(operation, run),
        }
    }

    /// Counts a lookup, unless an earlier daemon counted it for the same request.
    pub(crate) fn count_lookup(&self, request: &Request<'_>, number: u32) {
        let Some(resumable) = &self.resumable else { return self.lookup_counts.increment(number) };
        if request.is_resend() && resumable.lookups.was_counted(request.first_id()) {
            return;
        }
        self.lookup_counts.increment(number);
        if let Some(slot) = resumable.slots.of_thread() {
            resumable.lookups.record(slot, request.first_id());
        }
    }

    /// Restores what the earlier daemon knew of open files and unlinked inodes.
    pub(crate) fn resume(&self, session: &Handle) {
        let Some(takeover) = session.takeover().filter(|takeover| takeover.takeovers() > 0) else { return };
        let opens = || takeover.files().iter().chain(takeover.directories());
        self.handles.adopt(opens().map(|record| record.handle));
        self.write_errors.continue_after(opens().map(|record| record.handle));
        if !self.is_writable() {
            return;
        }
        let writers: Vec<&OpenRecord> =
            takeover.files().iter().filter(|record| record.flags & ACCMODE != 0).collect();
        for record in &writers {
            if let Ok(number) = self.number(record.node) {
                self.writers.opened(number, record.flags & ACCMODE != WRONLY);
            }
        }
        if let Some(low_space) = self.low_space.as_ref().filter(|_| !writers.is_empty()) {
            low_space.opened(|| session.caches().clone());
        }
        let unnamed = self.resumable.as_ref().map_or(&[][..], |resumable| &resumable.unnamed);
        for number in self.filesystem.unlinked() {
            let is_unused = self.lookup_counts.mark_unlinked(number);
            if let Some(reaper) = self.reaper.as_ref().filter(|_| is_unused && !unnamed.contains(&number)) {
                reaper.free(number);
            }
        }
    }
}
