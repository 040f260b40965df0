//! `--locks cluster`: file locks that hold on all connected nodes.
//!
//! On its own node a lock covers the byte range that it names. Towards its peers the node holds a [lock
//! lease](shunt_volume::lease) on the whole file: shared while all its locks are shared, else exclusive.

mod table;

use std::collections::HashMap;
use std::sync::Arc;

use futures::channel::oneshot;
use futures::future::{Either, select};
use parking_lot::Mutex;
use shunt_fuse::{Errno, FileHandle, LockArgs, LockKind, LockOwner, LockRange, LockType};
use shunt_volume::lease::{Leases, LockAnswer, LockGrant, SESSION_TTL, Wait};

use table::Table;

#[derive(Default)]
struct File {
    table: Table,
    grant: Option<LockGrant>,
    /// A request for a lock lease is pending; there is one at a time.
    is_requesting: bool,
    waiters: Vec<oneshot::Sender<()>>,
}

impl File {
    fn wake(&mut self) {
        for waiter in self.waiters.drain(..) {
            let _ = waiter.send(());
        }
    }
}

/// File locks of a volume.
pub(crate) struct Locks {
    leases: Arc<Leases>,
    files: Mutex<HashMap<u64, File>>,
}

enum NextStep {
    Done(Result<(), Errno>),
    /// Another owner on this node holds a conflicting lock.
    Conflict(oneshot::Receiver<()>),
    /// Another request has asked for a lock lease; the answer comes soon.
    Soon(oneshot::Receiver<()>),
    Claim(bool),
}

/// Pending request for a lock lease. Dropping it (the caller was interrupted) wakes the other waiters.
struct RequestGuard<'a>(&'a Locks, u64);

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let mut files = self.0.files.lock();
        if let Some(file) = files.get_mut(&self.1) {
            file.is_requesting = false;
            file.wake();
        }
        self.0.tidy(&mut files, self.1);
    }
}

/// A requested lock lease. It is released if it is granted after the requester is gone.
struct PendingGrant<'a>(&'a Leases, oneshot::Receiver<LockAnswer>);

impl Drop for PendingGrant<'_> {
    fn drop(&mut self) {
        self.1.close();
        if let Ok(Some(LockAnswer::Granted(grant))) = self.1.try_recv() {
            self.0.release(grant);
        }
    }
}

impl Locks {
    pub(crate) fn new(leases: Arc<Leases>) -> Self {
        Self { leases, files: Mutex::default() }
    }

    /// Returns a conflicting lock. For a lock of another node only its existence is known.
    pub(crate) fn get(&self, num: u64, args: &LockArgs) -> LockRange {
        let free = LockRange { kind: LockType::Unlock, ..args.range };
        if let Some(found) = self.files.lock().get(&num).and_then(|file| file.table.conflict(args)) {
            return found;
        }
        let exclusive = args.range.kind == LockType::Write;
        match self.leases.is_locked_by_peer(num, exclusive) {
            true => LockRange { start: 0, end: u64::MAX >> 1, kind: LockType::Write, pid: 0 },
            false => free,
        }
    }

    /// Sets a lock, waiting for it if requested.
    pub(crate) async fn set(&self, num: u64, args: &LockArgs) -> Result<(), Errno> {
        if args.range.kind == LockType::Unlock {
            self.change(num, |table| _ = table.set(args));
            return Ok(());
        }
        let mut asking = None;
        loop {
            match self.step(num, args, asking.is_some()) {
                NextStep::Done(done) => return done,
                NextStep::Conflict(_) if !args.wait => return Err(Errno::AGAIN),
                NextStep::Conflict(wait) => {
                    drop(asking.take());
                    let _ = wait.await;
                }
                NextStep::Soon(wait) => {
                    let _ = wait.await;
                }
                NextStep::Claim(exclusive) => {
                    // Held until the lock is set, because a lock lease without a lock is released.
                    asking.get_or_insert(RequestGuard(self, num));
                    let answer = self.leases.request_lock(num, exclusive).ok_or(Errno::NOLCK)?;
                    let mut pending = PendingGrant(&self.leases, answer);
                    // After that time this node is disconnected.
                    let answer = match select(&mut pending.1, Wait::pause(SESSION_TTL)).await {
                        Either::Left((answer, _)) => answer.map_err(|_| Errno::NOLCK)?,
                        Either::Right(_) => return Err(Errno::NOLCK),
                    };
                    match answer {
                        LockAnswer::Granted(grant) => self.take(num, grant),
                        LockAnswer::Busy(_) if !args.wait => return Err(Errno::AGAIN),
                        LockAnswer::Busy(freed) => {
                            drop(asking.take());
                            let _ = freed.await;
                        }
                    }
                }
            }
        }
    }

    /// Takes the next step towards a lock. `is_requester`: this caller has the pending request for a lock lease.
    fn step(&self, num: u64, args: &LockArgs, is_requester: bool) -> NextStep {
        let mut files = self.files.lock();
        let file = files.entry(num).or_default();
        if file.table.conflict(args).is_some() {
            let (wake, wait) = oneshot::channel();
            file.waiters.push(wake);
            return NextStep::Conflict(wait);
        }
        let held = file.grant.filter(|held| self.leases.is_held(*held));
        if held.is_none() && !file.table.is_empty() {
            // The session was lost: other nodes may have held the file in between.
            return NextStep::Done(Err(Errno::IO));
        }
        let exclusive = args.range.kind == LockType::Write;
        if held.is_some_and(|held| held.exclusive || !exclusive) {
            let set = file.table.set(args);
            file.wake();
            return NextStep::Done(if set { Ok(()) } else { Err(Errno::NOLCK) });
        }
        if file.is_requesting && !is_requester {
            let (wake, wait) = oneshot::channel();
            file.waiters.push(wake);
            return NextStep::Soon(wait);
        }
        file.is_requesting = true;
        NextStep::Claim(exclusive)
    }

    /// Replaces a lock lease by another one.
    fn take(&self, num: u64, grant: LockGrant) {
        let before = self.files.lock().entry(num).or_default().grant.replace(grant);
        if let Some(before) = before {
            self.leases.release(before);
        }
    }

    /// Releases all locks of an owner when a descriptor is closed.
    pub(crate) fn end(&self, num: u64, kind: LockKind, owner: LockOwner) {
        self.change(num, |table| table.end(kind, owner));
    }

    /// Releases all locks that were set through an open file when it is released.
    pub(crate) fn end_of(&self, num: u64, handle: FileHandle) {
        self.change(num, |table| table.end_of(handle));
    }

    fn change(&self, num: u64, change: impl FnOnce(&mut Table)) {
        let mut files = self.files.lock();
        if let Some(file) = files.get_mut(&num) {
            change(&mut file.table);
            file.wake();
        }
        self.tidy(&mut files, num);
    }

    /// Releases a lock lease that no lock or request needs any more.
    fn tidy(&self, files: &mut HashMap<u64, File>, num: u64) {
        let Some(file) = files.get_mut(&num).filter(|file| file.table.is_empty() && !file.is_requesting)
        else {
            return;
        };
        if let Some(grant) = file.grant.take() {
            self.leases.release(grant);
        }
        file.waiters.retain(|waiter| !waiter.is_canceled());
        if file.waiters.is_empty() {
            files.remove(&num);
        }
    }
}
