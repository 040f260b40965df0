//! A session that outlives its server.
//!
//! Where a [guardian](crate::guardian) was told how to [restart](crate::guardian::Restart) its server, it holds all that
//! belongs to the session: the connection, a memory file with what the server knows that nobody else does, and the
//! descriptors that the file system asked it to hold. When the server ends, by SIGKILL or by a crash, the next one
//! [gets](crate::guardian::HandOver) these, reads on from the same connection, and asks the kernel for the requests that
//! were under way once more (FUSE_NOTIFY_RESEND). Applications wait for a moment.
//!
//! What a file system does for it:
//!
//! - **Nodes.** The new server knows no node table. Node ids must tell it the inode:
//!   see [`TableNode::id`](crate::TableNode).
//! - **Handles.** Their lower 32 bits are a small number of their own while they are open, for files and for directories
//!   each, from 0 up; they are never 0 as a whole, and no handle is used again soon: the upper 32 bits count.
//!   [`Takeover::files`] and [`Takeover::directories`] tell what is open, once, at the start.
//! - **Descriptors** that no path or handle leads back to (the file system's root, files without a name) are
//!   [held](Takeover::hold).
//! - **What else it must know** and can say in a number is [marked](Takeover::mark); more than that goes into a memory file
//!   ([`Map`]) that is held.
//! - **What must not be done twice.** The kernel asks again for what it has no reply to, done or not. Before the system
//!   call that changes something, a handler says so with [`Request::begin`](crate::Request::begin); a later server finds it
//!   with [`Request::begun`](crate::Request::begun), and then takes, say, EEXIST of a mkdir for success. What is the same
//!   when done twice (a write at an offset, a chmod) needs none of it.

mod intents;
mod map;
mod marks;
mod opens;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::guardian::fd_store::{Class, Key};
use crate::guardian::{Guardian, GuardianError};
use crate::id::NodeId;
use crate::negotiate::Negotiated;
use crate::transport::device::Device;
use intents::Intents;
use marks::Marks;
pub(crate) use opens::Kind;
use state::{BACKING_HIGH, State};

pub use intents::{Before, Begun};
pub use map::Map;
pub use opens::OpenRecord;
pub use state::VERSION;

/// More registrations than threads can be in the middle of.
const STRAY: u32 = 64;

/// The part of a session that outlives its server.
#[derive(Debug)]
pub struct Takeover {
    guardian: Arc<Guardian>,
    state: State,
    takeovers: u32,
    intents: Intents,
    marks: Marks,
    files: Vec<OpenRecord>,
    directories: Vec<OpenRecord>,
    /// What earlier servers opened, by request, until the kernel shows that it had the reply.
    opened: Mutex<HashMap<u64, (Kind, OpenRecord)>>,
    /// Clones of the connection that nobody reads from.
    spare: Mutex<Vec<Arc<Device>>>,
    clones: Mutex<u64>,
    guardian_lost: AtomicBool,
}

impl Takeover {
    /// Of a session that begins.
    pub(crate) fn begin(
        guardian: Arc<Guardian>,
        negotiated: &Negotiated,
        device: &Device,
    ) -> Result<Self, BeginError> {
        let state = State::create(negotiated)?;
        guardian.hold(Key { class: Class::Device, id: 0 }, device.as_fd())?;
        guardian.hold(Key { class: Class::State, id: 0 }, state.as_fd())?;
        Ok(Self::new(guardian, state, 0, Vec::new()))
    }

    /// Of a session that another server began.
    pub(crate) fn resume(
        guardian: Arc<Guardian>,
        state: OwnedFd,
        spare: Vec<Arc<Device>>,
        takeovers: u32,
    ) -> io::Result<(Self, Negotiated)> {
        let (state, negotiated) = State::open(state)?;
        Ok((Self::new(guardian, state, takeovers, spare), negotiated))
    }

    fn new(guardian: Arc<Guardian>, state: State, takeovers: u32, spare: Vec<Arc<Device>>) -> Self {
        let files = opens::all(&state, Kind::File);
        let directories = opens::all(&state, Kind::Directory);
        let of = |kind, records: &[OpenRecord]| {
            records.iter().map(|record| (record.opener, (kind, *record))).collect::<Vec<_>>()
        };
        let opened = of(Kind::File, &files).into_iter().chain(of(Kind::Directory, &directories)).collect();
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
            spare: Mutex::new(spare),
            guardian_lost: AtomicBool::new(false),
        }
    }

    /// Servers before this one.
    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    /// Files that were open when this server began.
    pub fn files(&self) -> &[OpenRecord] {
        &self.files
    }

    /// Directories that were open when this server began.
    pub fn directories(&self) -> &[OpenRecord] {
        &self.directories
    }

    /// Has the guardian hold a descriptor for the next server, under an id of the file system's choice. When this
    /// returns, the descriptor survives this process.
    ///
    /// Without a guardian there is no next server, and nothing to hold: that is no error.
    pub fn hold(&self, id: u64, descriptor: BorrowedFd<'_>) {
        let key = Key { class: Class::FileSystem, id };
        self.heard(self.guardian.hold(key, descriptor));
    }

    /// The descriptor of this id need not be held any more.
    pub fn let_go(&self, id: u64) {
        self.heard(self.guardian.let_go(Key { class: Class::FileSystem, id }));
    }

    /// As [`hold`](Self::hold), for an inode that has no handle.
    pub fn hold_node(&self, node: NodeId, descriptor: BorrowedFd<'_>) {
        self.heard(self.guardian.hold(Key { class: Class::Node, id: node.0 }, descriptor));
    }

    /// The descriptor of this inode need not be held any more.
    pub fn let_go_node(&self, node: NodeId) {
        self.heard(self.guardian.let_go(Key { class: Class::Node, id: node.0 }));
    }

    /// Has the next server know a number other than 0, of the file system's choice. 262,144 have room.
    pub fn mark(&self, number: u64) {
        self.marks.add(&self.state, number);
    }

    /// The next server need not know a number any more.
    pub fn unmark(&self, number: u64) {
        self.marks.remove(&self.state, number);
    }

    /// The numbers that were [marked](Self::mark), by earlier servers too.
    pub fn marks(&self) -> Vec<u64> {
        self.marks.all()
    }

    /// Whether all are there: once there was no room for one, they are not.
    pub fn has_all_marks(&self) -> bool {
        Marks::are_complete(&self.state)
    }

    fn heard(&self, result: Result<(), GuardianError>) {
        if let Err(error) = result
            && !self.guardian_lost.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("{error}");
        }
    }

    /// A connection for one more reader.
    pub(crate) fn clone_of(&self, device: &Device) -> io::Result<Arc<Device>> {
        if let Some(spare) = self.spare.lock().pop() {
            return Ok(spare);
        }
        let clone = device.try_clone()?;
        let id = {
            let mut clones = self.clones.lock();
            *clones += 1;
            *clones
        };
        // Before anything is read from it.
        self.heard(self.guardian.hold(Key { class: Class::Device, id }, clone.as_fd()));
        Ok(Arc::new(clone))
    }

    /// A reader left. Its connection may still have requests under way, so it is never closed.
    pub(crate) fn give_back(&self, device: Arc<Device>) {
        self.spare.lock().push(device);
    }

    pub(crate) fn opened(&self, kind: Kind, record: &OpenRecord) {
        if !opens::add(&self.state, kind, record) {
            tracing::debug!(handle = %record.handle, "no room to write an open file down");
        }
    }

    /// What an earlier server had opened for this request, of which the kernel never heard. It is told only once.
    pub(crate) fn opened_by(&self, unique: u64) -> Option<(Kind, OpenRecord)> {
        let found = self.opened.lock().remove(&unique)?;
        opens::holds(&self.state, found.0, found.1.handle).then_some(found)
    }

    /// Whether a handle is still open.
    pub(crate) fn is_open(&self, kind: Kind, handle: crate::FileHandle) -> bool {
        opens::holds(&self.state, kind, handle)
    }

    /// A handle is no longer open; `close` ends the use of its backing file.
    pub(crate) fn closed(&self, kind: Kind, handle: crate::FileHandle, close: impl FnOnce()) {
        opens::remove(&self.state, kind, handle, close);
    }

    /// Numbers of backing files that may be registered for nothing, now that nobody but the open files needs any.
    pub(crate) fn stray_backings(&self) -> Vec<u32> {
        // Numbers rise; one may have been given of which nobody took note any more.
        let high = self.state.word(BACKING_HIGH).load(Ordering::Acquire) as u32;
        let newest = high.saturating_sub(STRAY).max(1)..=high.saturating_add(STRAY);
        let used: HashSet<u32> = self.files.iter().map(|file| file.backing).collect();
        let stray = opens::doubtful_backings(&self.state).chain(newest).filter(|id| !used.contains(id));
        stray.collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub(crate) fn begin_intent(&self, unique: u64, before: Before) -> Option<usize> {
        self.intents.begin(&self.state, unique, before)
    }

    pub(crate) fn inherit_intent(&self, unique: u64) -> Option<(usize, Begun)> {
        self.intents.inherit(unique)
    }

    pub(crate) fn end_intent(&self, slot: usize, result: Result<(), Errno>) {
        self.intents.end(&self.state, slot, result);
    }

    pub(crate) fn clear_intent(&self, slot: usize) {
        self.intents.clear(&self.state, slot);
    }
}

/// Why a session cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    #[error("no memory for the state: {0}")]
    State(#[from] io::Error),
    #[error(transparent)]
    Guardian(#[from] GuardianError),
}
