//! Takeover: a session survives the crash or upgrade of its server.
//!
//! A [guardian](crate::guardian) that can [restart](crate::guardian::Restart) its server holds everything that belongs to the
//! session: the connection, a memory file with the state that only the server knows, and the descriptors that the file system
//! stored. When the server ends, by SIGKILL or by a crash, the next one [receives](crate::guardian::HandOver) these, continues to
//! read from the same connection, and asks the kernel to resend the requests that were in flight (FUSE_NOTIFY_RESEND).
//! Applications only notice a pause.
//!
//! Requirements for a file system:
//!
//! - **Nodes.** The new server has no node table. Node ids must encode the inode: see [`TableNode::id`](crate::TableNode).
//! - **Handles.** Their lower 32 bits are a small number, unique among the open files or the open directories, from 0 up; a
//!   handle is never 0 as a whole, and is not reused soon: the upper 32 bits count. [`Takeover::files`] and
//!   [`Takeover::directories`] return the open handles at the start of the new server.
//! - **Descriptors** that cannot be reopened by a path or handle (the file system's root, files without a name) are
//!   [stored](Takeover::store) with the guardian.
//! - **Backing files** that a program in the kernel may use on its own are [kept](Takeover::keep_backing).
//! - **Other state** that fits in a number is [marked](Takeover::mark); larger state goes into a memory file ([`Map`]) that is
//!   stored.
//! - **Operations that must not run twice.** The kernel resends every request without a reply, executed or not. Before the system
//!   call that changes something, a handler calls [`Request::begin`](crate::Request::begin); a later server finds the record with
//!   [`Request::begun`](crate::Request::begun), and then treats, say, EEXIST of a mkdir as success. Idempotent operations (a
//!   write at an offset, a chmod) need none of this.

mod intents;
mod kept_backings;
mod map;
mod marks;
mod opens;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::guardian::fd_store::{DescriptorClass, Key, SESSION_STATE, StoredDescriptors};
use crate::guardian::{Guardian, GuardianError};
use crate::id::NodeId;
use crate::negotiate::Negotiated;
use crate::passthrough::Backing;
use crate::transport::device::Device;
use intents::Intents;
use kept_backings::KeptBackings;
use marks::Marks;
pub(crate) use opens::OpenKind;
use state::{BACKING_HIGH_WORD, TakeoverState};

pub use intents::{BegunOperation, IntentData};
pub use map::Map;
pub use opens::OpenRecord;
pub use state::VERSION;

const KEPT_BACKINGS: Key = Key { class: DescriptorClass::State, id: 1 };

/// Upper bound of the registrations that threads can be in the middle of.
const MAX_PENDING_REGISTRATIONS: u32 = 64;

/// The part of a session that outlives its server.
#[derive(Debug)]
pub struct Takeover {
    guardian: Arc<Guardian>,
    state: TakeoverState,
    takeovers: u32,
    intents: Intents,
    marks: Marks,
    files: Vec<OpenRecord>,
    directories: Vec<OpenRecord>,
    /// Opens of earlier servers, by request, until the kernel shows that it received the reply.
    opened: Mutex<HashMap<u64, (OpenKind, OpenRecord)>>,
    /// Clones of the connection without a reader.
    spare_clones: Mutex<Vec<Arc<Device>>>,
    /// `None` until the first backing file is kept.
    kept_backings: Arc<Mutex<Option<KeptBackings>>>,
    clones: Mutex<u64>,
    guardian_lost: AtomicBool,
}

impl Takeover {
    /// Makes the state of a new session.
    pub(crate) fn begin(
        guardian: Arc<Guardian>,
        negotiated: &Negotiated,
        device: &Device,
    ) -> Result<Self, BeginError> {
        let state = TakeoverState::create(negotiated)?;
        guardian.store(Key { class: DescriptorClass::Device, id: 0 }, device.as_fd())?;
        guardian.store(SESSION_STATE, state.as_fd())?;
        Ok(Self::new(guardian, state, 0, Vec::new(), None))
    }

    /// Makes the state of a new session with the kernel of a guest, whose connection the guardian holds already.
    #[cfg(feature = "virtiofs")]
    pub(crate) fn begin_guest(guardian: Arc<Guardian>, negotiated: &Negotiated) -> Result<Self, BeginError> {
        let state = TakeoverState::create(negotiated)?;
        guardian.store(SESSION_STATE, state.as_fd())?;
        Ok(Self::new(guardian, state, 0, Vec::new(), None))
    }

    /// Restores the state of a session that another server began.
    pub(crate) fn resume(
        guardian: Arc<Guardian>,
        held: &mut StoredDescriptors,
        spare: Vec<Arc<Device>>,
        takeovers: u32,
    ) -> io::Result<(Self, Negotiated)> {
        let state = held
            .remove(&SESSION_STATE)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the guardian handed over no state"))?;
        let (state, negotiated) = TakeoverState::open(state)?;
        let kept = held.remove(&KEPT_BACKINGS).map(KeptBackings::open).transpose()?;
        Ok((Self::new(guardian, state, takeovers, spare, kept), negotiated))
    }

    fn new(
        guardian: Arc<Guardian>,
        state: TakeoverState,
        takeovers: u32,
        spare: Vec<Arc<Device>>,
        kept_backings: Option<KeptBackings>,
    ) -> Self {
        let files = opens::all(&state, OpenKind::File);
        let directories = opens::all(&state, OpenKind::Directory);
        let of = |kind, records: &[OpenRecord]| {
            records.iter().map(|record| (record.opener, (kind, *record))).collect::<Vec<_>>()
        };
        let opened =
            of(OpenKind::File, &files).into_iter().chain(of(OpenKind::Directory, &directories)).collect();
        Self {
            guardian,
            intents: Intents::read(&state, takeovers.into()),
            marks: Marks::read(&state),
            state,
            takeovers,
            files,
            directories,
            opened: Mutex::new(opened),
            clones: Mutex::new(spare.len() as u64),
            spare_clones: Mutex::new(spare),
            kept_backings: Arc::new(Mutex::new(kept_backings)),
            guardian_lost: AtomicBool::new(false),
        }
    }

    /// Returns the number of servers before this one.
    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    /// Returns the files that were open when this server started.
    pub fn files(&self) -> &[OpenRecord] {
        &self.files
    }

    /// Returns the directories that were open when this server started.
    pub fn directories(&self) -> &[OpenRecord] {
        &self.directories
    }

    /// Stores a descriptor with the guardian for the next server, under an id that the file system chooses. When this returns,
    /// the descriptor survives this process.
    ///
    /// Without a guardian there is no next server, and nothing to store: that is not an error. Where a
    /// [service manager](Guardian::in_service_manager) is the guardian, descriptors with ids of 2^32 and more, and those of
    /// [inodes](Self::store_node), survive a planned restart, but no crash.
    pub fn store(&self, id: u64, descriptor: BorrowedFd<'_>) {
        let key = Key { class: DescriptorClass::FileSystem, id };
        self.report_lost_guardian(self.guardian.store(key, descriptor));
    }

    /// Drops the stored descriptor of this id.
    pub fn remove(&self, id: u64) {
        self.report_lost_guardian(
            self.guardian.remove_stored(Key { class: DescriptorClass::FileSystem, id }),
        );
    }

    /// Stores a descriptor as [`store`](Self::store) does, for an inode without a handle.
    pub fn store_node(&self, node: NodeId, descriptor: BorrowedFd<'_>) {
        self.report_lost_guardian(
            self.guardian.store(Key { class: DescriptorClass::Node, id: node.0 }, descriptor),
        );
    }

    /// Drops the stored descriptor of this inode.
    pub fn remove_node(&self, node: NodeId) {
        self.report_lost_guardian(
            self.guardian.remove_stored(Key { class: DescriptorClass::Node, id: node.0 }),
        );
    }

    /// Adds a nonzero number of the file system's choice to the set that the next server reads. The set has room for 262,144.
    pub fn mark(&self, number: u64) {
        self.marks.add(&self.state, number);
    }

    /// Removes a number from the set.
    pub fn unmark(&self, number: u64) {
        self.marks.remove(&self.state, number);
    }

    /// Returns the numbers that were [marked](Self::mark), by earlier servers too.
    pub fn marks(&self) -> Vec<u64> {
        self.marks.all()
    }

    /// Reports whether the set is complete: it is not if it ever overflowed.
    pub fn has_all_marks(&self) -> bool {
        Marks::are_complete(&self.state)
    }

    /// Records that `backing` must stay registered for `node`, whose opens a program in the kernel answers: the next server
    /// [adopts](crate::Handle::take_kept_backings) it. Call it before the program can open the node. Returns `false` if there is
    /// no room: 16,384 are recorded at most.
    pub fn keep_backing(&self, node: NodeId, backing: &Backing) -> bool {
        let mut kept = self.kept_backings.lock();
        if kept.is_none() {
            let Ok(records) = KeptBackings::create() else { return false };
            self.report_lost_guardian(self.guardian.store(KEPT_BACKINGS, records.as_fd()));
            *kept = Some(records);
        }
        kept.as_mut().is_some_and(|kept| kept.add(node, backing.id()))
    }

    /// Ends what [`keep_backing`](Self::keep_backing) began: from here on it can be called for this node again.
    pub fn release_backing(&self, node: NodeId, backing: Backing) -> ReleasedBacking {
        let index =
            self.kept_backings.lock().as_mut().and_then(|kept| kept.begin_removal(node, backing.id()));
        let record = index.map(|index| (self.kept_backings.clone(), index));
        ReleasedBacking { backing: Some(backing), record }
    }

    /// Returns the backing files that earlier servers kept.
    pub(crate) fn kept_backings(&self) -> Vec<(NodeId, u32)> {
        self.kept_backings.lock().iter().flat_map(KeptBackings::all).collect()
    }

    fn report_lost_guardian(&self, result: Result<(), GuardianError>) {
        if let Err(error) = result {
            if !self.guardian_lost.swap(true, Ordering::Relaxed) {
                tracing::warn!("{error}");
            }
        }
    }

    /// Returns a connection for another reader.
    pub(crate) fn clone_of(&self, device: &Device) -> io::Result<Arc<Device>> {
        if let Some(spare) = self.spare_clones.lock().pop() {
            return Ok(spare);
        }
        // A sealed guardian stores no clone, and requests that were read from it would be lost with this process.
        if self.guardian.is_sealed() {
            return Ok(Arc::new(device.duplicate()?));
        }
        let clone = device.try_clone()?;
        // The guardian holds the descriptor of which this is a duplicate.
        if clone.is_duplicate() {
            return Ok(Arc::new(clone));
        }
        let id = {
            let mut clones = self.clones.lock();
            *clones += 1;
            *clones
        };
        // Stored before anything is read from it.
        self.report_lost_guardian(
            self.guardian.store(Key { class: DescriptorClass::Device, id }, clone.as_fd()),
        );
        // It may have been sealed before the clone arrived.
        Ok(Arc::new(if self.guardian.is_sealed() { device.duplicate()? } else { clone }))
    }

    /// Takes back the connection of a reader that exited. It may still have requests in flight, so it is never closed.
    pub(crate) fn put_back(&self, device: Arc<Device>) {
        self.spare_clones.lock().push(device);
    }

    pub(crate) fn opened(&self, kind: OpenKind, record: &OpenRecord) {
        if !opens::add(&self.state, kind, record) {
            tracing::debug!(handle = %record.handle, "cannot record an open file for takeover: table full");
        }
    }

    /// Returns the open that an earlier server made for this request, of which the kernel did not get the reply. Each is returned
    /// once.
    pub(crate) fn opened_by(&self, unique: u64) -> Option<(OpenKind, OpenRecord)> {
        let found = self.opened.lock().remove(&unique)?;
        opens::is_open(&self.state, found.0, found.1.handle).then_some(found)
    }

    /// Reports whether a handle is still open.
    pub(crate) fn is_open(&self, kind: OpenKind, handle: crate::FileHandle) -> bool {
        opens::is_open(&self.state, kind, handle)
    }

    /// Removes the record of a handle; `close` ends the use of its backing file.
    pub(crate) fn closed(&self, kind: OpenKind, handle: crate::FileHandle, close: impl FnOnce()) {
        opens::remove(&self.state, kind, handle, close);
    }

    /// Calls `close` with the ids of backing files that may be registered although nothing uses them. Call it before the first new
    /// open.
    pub(crate) fn close_stray_backings(&self, close: impl FnMut(u32)) {
        // Ids are assigned in ascending order; the last one may have been assigned without being recorded.
        let high = self.state.word(BACKING_HIGH_WORD).load(Ordering::Acquire) as u32;
        let newest = high.saturating_sub(MAX_PENDING_REGISTRATIONS).max(1)
            ..=high.saturating_add(MAX_PENDING_REGISTRATIONS);
        let mut kept = self.kept_backings.lock();
        let kept_ids = kept.iter().flat_map(|kept| kept.all().map(|(_, id)| id));
        let used: HashSet<u32> = self.files.iter().map(|file| file.backing).chain(kept_ids).collect();
        let doubtful = kept.iter().flat_map(KeptBackings::doubtful);
        let doubtful = doubtful.chain(opens::doubtful_backings(&self.state));
        let stray: BTreeSet<u32> = doubtful.chain(newest).filter(|id| !used.contains(id)).collect();
        stray.into_iter().for_each(close);
        opens::clear_doubtful(&self.state);
        if let Some(kept) = &mut *kept {
            kept.clear_doubtful();
        }
    }

    pub(crate) fn begin_intent(&self, unique: u64, before: IntentData) -> Option<usize> {
        self.intents.begin(&self.state, unique, before)
    }

    pub(crate) fn inherit_intent(&self, unique: u64) -> Option<(usize, BegunOperation)> {
        self.intents.inherit(unique)
    }

    pub(crate) fn end_intent(&self, slot: usize, result: Result<(), Errno>) {
        self.intents.end(&self.state, slot, result);
    }

    pub(crate) fn clear_intent(&self, slot: usize) {
        self.intents.clear(&self.state, slot);
    }
}

/// A backing file whose record was removed. Dropping this ends the registration, which is a system call.
#[derive(Debug)]
#[must_use = "drop it without a lock"]
pub struct ReleasedBacking {
    backing: Option<Backing>,
    record: Option<(Arc<Mutex<Option<KeptBackings>>>, usize)>,
}

impl From<Backing> for ReleasedBacking {
    /// Makes one without a record: there is no takeover.
    fn from(backing: Backing) -> Self {
        Self { backing: Some(backing), record: None }
    }
}

impl Drop for ReleasedBacking {
    fn drop(&mut self) {
        drop(self.backing.take());
        // Until here the record shows that the backing file may still be registered.
        if let Some((kept, index)) = self.record.take() {
            kept.lock().iter_mut().for_each(|kept| kept.finish_removal(index));
        }
    }
}

/// An error that prevents takeovers of a session.
#[derive(Debug)]
pub(crate) enum BeginError {
    State(io::Error),
    Guardian(GuardianError),
}

impl fmt::Display for BeginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State(error) => write!(f, "cannot create the takeover state: {error}"),
            Self::Guardian(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BeginError {}

impl From<io::Error> for BeginError {
    fn from(error: io::Error) -> Self {
        Self::State(error)
    }
}

impl From<GuardianError> for BeginError {
    fn from(error: GuardianError) -> Self {
        Self::Guardian(error)
    }
}
