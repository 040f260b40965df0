//! One round of synchronisation: completes an earlier round's push, pulls the log of the store, and pushes local changes.
//!
//! Local changes are planned as commits and stored in the outbox of the replica before they are sent, so that an interrupted
//! push is repeated with the same token.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::failpoint::{Failpoint, point};
use crate::id::{NodeName, ObjectId, Seq};
use crate::merge::{IdAllocator, Plan, PlanError, Trees, apply_entry, begin, resync};
use crate::store::{LogEntry, MetaStore, StoreError};
use crate::sync::resync::snapshot;
use crate::sync::verified_log::VerifiedLog;
use crate::sync::{LogFingerprint, SyncError, SyncReplica};

/// Log entries read in one request.
const PAGE_ENTRIES: usize = 1024;

/// Log entries applied in one transaction, which blocks users for as long.
const APPLY_BATCH_ENTRIES: usize = 64;

/// The result of a round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Log entries received, except this node's own.
    pub received: usize,
    /// Commits accepted by the store.
    pub sent: usize,
    /// Commits rejected because their preconditions had changed.
    pub refused: usize,
    /// Blocked changes.
    pub blocked: usize,
    /// There may be more to do at once.
    pub more: bool,
    /// The reason why the store rejects this node's changes.
    pub denied: Option<String>,
}

/// Synchronises a replica and a store, one round at a time.
pub struct Synchroniser<S> {
    pub(super) replica: S,
    pub(super) store: Arc<dyn MetaStore>,
    pub(super) node: NodeName,
    pub(super) token: Box<dyn FnMut() -> u128 + Send>,
    /// The log position at which every commit was rejected in the last attempt.
    pub(super) no_progress_at: Option<Seq>,
    pub(super) push_paused: Arc<AtomicBool>,
    /// The verified position, for a volume with a sealed log.
    pub(super) verified_log: Option<VerifiedLog>,
}

impl<S> std::fmt::Debug for Synchroniser<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Synchroniser").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<S: SyncReplica> Synchroniser<S> {
    /// Creates a synchroniser. `token` returns numbers that no other commit of any node has.
    pub fn new(
        replica: S,
        store: Arc<dyn MetaStore>,
        node: NodeName,
        token: impl FnMut() -> u128 + Send + 'static,
    ) -> Self {
        Self {
            replica,
            store,
            node,
            token: Box::new(token),
            no_progress_at: None,
            push_paused: Arc::default(),
            verified_log: None,
        }
    }

    /// Returns the replica.
    pub fn replica(&self) -> &S {
        &self.replica
    }

    /// Returns the flag that stops pushing local changes, even in a round in progress.
    pub fn push_paused(&self) -> Arc<AtomicBool> {
        self.push_paused.clone()
    }

    /// Runs one round. After an error the next round resumes where this one failed.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`](crate::store::StoreError::Unreachable) while offline; see [`SyncError`].
    pub fn step(&mut self) -> Result<Step, SyncError> {
        let outcome = self.round();
        match &outcome {
            Ok(_) => self.replica.set_rollback_detected(false)?,
            Err(SyncError::WentBack(_) | SyncError::Store(StoreError::Tampered(_))) => {
                self.replica.set_rollback_detected(true)?;
            }
            Err(_) => {}
        }
        outcome
    }

    fn round(&mut self) -> Result<Step, SyncError> {
        let mut step = Step::default();
        // A node whose changes are rejected still receives those of others.
        step.denied = denied(self.resume(&mut step))?;
        self.pull(&mut step)?;
        if !step.more && step.denied.is_none() {
            step.denied = denied(self.push(&mut step))?;
            step.more &= step.denied.is_none();
        }
        Ok(step)
    }

    /// Returns the log entries behind the last one that was read.
    ///
    /// Entries of a sealed log are verified first.
    pub(super) fn entries(&mut self, cursor: Seq, limit: usize) -> Result<Vec<LogEntry>, SyncError> {
        let Self { replica, store, verified_log: followed, .. } = self;
        let Some(log) = store.sealed_log() else {
            let read = |after, limit| store.log_since(after, limit);
            return read_on(replica, &**store, cursor, limit, &read, &LogFingerprint::of);
        };
        let mut verified = match followed.take() {
            Some(followed) => followed,
            None => VerifiedLog::resume(log, replica, cursor)?,
        };
        let read = |after, limit| log.stored_since(after, limit);
        // The fingerprint of the entry in its shown form, which is the one from before the volume was upgraded.
        let mark = |entry: &LogEntry| LogFingerprint::of(&log.decrypt_entry(entry.clone()));
        let entries = read_on(replica, &**store, cursor, limit, &read, &mark)?;
        verified.verify(log.sealer(), &entries)?;
        *followed = Some(verified);
        Ok(entries.into_iter().map(|entry| log.decrypt_entry(entry)).collect())
    }

    /// Applies the next log entries. Returns whether the end of the log was reached.
    pub(super) fn pull(&mut self, step: &mut Step) -> Result<bool, SyncError> {
        let mut outbox = self.replica.outbox()?;
        let mut cursor = self.replica.cursor()?;
        if cursor == Seq(0) {
            self.begin()?;
        }
        let entries = match self.entries(cursor, PAGE_ENTRIES) {
            Err(SyncError::Store(StoreError::Forgotten(_))) => {
                self.resync(step)?;
                return Ok(false);
            }
            entries => entries?,
        };
        point(Failpoint::LogRead)?;
        step.more = entries.len() == PAGE_ENTRIES;
        for part in entries.chunks(APPLY_BATCH_ENTRIES) {
            let mut plans: Vec<(LogFingerprint, Box<Plan<'_>>)> = Vec::with_capacity(part.len());
            for entry in part {
                if entry.seq != Seq(cursor.0 + 1) {
                    return Err(
                        PlanError::Log(format!("commit {} follows commit {cursor}", entry.seq)).into()
                    );
                }
                let sent = outbox
                    .as_ref()
                    .is_some_and(|outbox| outbox.items.iter().any(|item| item.mutations == entry.change));
                let own = sent && entry.node == self.node;
                let plan = move |trees: &dyn Trees, fresh: &mut dyn IdAllocator| {
                    apply_entry(trees, fresh, entry, own)
                };
                plans.push((LogFingerprint::of(entry), Box::new(plan)));
                cursor = entry.seq;
                step.received += usize::from(!own);
            }
            self.replica.change_each(&mut plans)?;
        }
        if let (Some(log), Some(followed)) = (self.store.sealed_log(), &mut self.verified_log) {
            followed.applied(log.sealer(), &self.replica, cursor)?;
        }
        if outbox.as_ref().and_then(|outbox| outbox.answered).is_some_and(|answered| answered <= cursor) {
            outbox = None;
            point(Failpoint::LogApplied)?;
            self.replica.set_outbox(None)?;
        }
        step.more |= outbox.is_some() && step.denied.is_none();
        Ok(entries.is_empty())
    }

    /// Compares the whole tree of the store, because its log no longer reaches back to this node's position.
    fn resync(&mut self, step: &mut Step) -> Result<(), SyncError> {
        // Commits already read are not included: other nodes may have changed the same objects since.
        let cursor = self.replica.cursor()?;
        // Nor are those of a batch without a reply: the store is not known to have accepted them.
        let outbox = self.replica.outbox()?.filter(|outbox| outbox.answered.is_some());
        let own = outbox.map_or_else(Vec::new, |outbox| outbox.entries_after(cursor));
        tracing::info!(
            "the log of the store no longer reaches back to the last commit read: reading the whole tree"
        );
        let (snapshot, at) = snapshot(&self.replica, &*self.store, &own)?;
        let remote_node = NodeName::store();
        let own = &mut own.as_slice();
        point(Failpoint::TreeRead)?;
        self.replica.change(Some(at), &mut |trees, fresh| {
            match resync(trees, fresh, own, &snapshot, &remote_node) {
                // Their outcome is not clear: they are treated as commits of another node.
                Err(PlanError::Log(_)) if !own.is_empty() => {
                    *own = &[];
                    resync(trees, fresh, own, &snapshot, &remote_node)
                }
                changes => changes,
            }
        })?;
        point(Failpoint::TreeApplied)?;
        self.replica.set_outbox(None)?;
        step.received += snapshot.objects.len().max(1);
        step.more = true;
        Ok(())
    }

    /// Reads the root directory, which existed before the log began.
    fn begin(&self) -> Result<(), SyncError> {
        let Some(stored) = self.store.get(&[ObjectId::ROOT])?.into_iter().next().flatten() else {
            return Ok(());
        };
        self.replica.change(None, &mut |trees, fresh| begin(trees, fresh, &stored))?;
        Ok(())
    }
}

/// Reads log entries behind the last one that was read, and checks that the store still has that one: otherwise the store was
/// rolled back.
///
/// Synchronisation stops then. It would otherwise take objects that the store lost as deleted by other nodes, and would never
/// receive what other nodes commit up to this node's log position.
fn read_on(
    replica: &impl SyncReplica,
    store: &dyn MetaStore,
    cursor: Seq,
    limit: usize,
    read: &dyn Fn(Seq, usize) -> Result<Vec<LogEntry>, StoreError>,
    mark_of: &dyn Fn(&LogEntry) -> LogFingerprint,
) -> Result<Vec<LogEntry>, SyncError> {
    if cursor == Seq(0) {
        return Ok(read(cursor, limit)?);
    }
    let mut entries = match read(Seq(cursor.0 - 1), limit.saturating_add(1)) {
        // The log may begin just behind that entry.
        Err(StoreError::Forgotten(_)) => {
            let entries = read(cursor, limit)?;
            if entries.is_empty() && store.head()? < cursor {
                return Err(SyncError::WentBack(cursor));
            }
            return Ok(entries);
        }
        entries => entries?.into_iter(),
    };
    let last = entries.next().filter(|entry| entry.seq == cursor);
    let found = mark_of(&last.ok_or(SyncError::WentBack(cursor))?);
    // None after the whole tree was read, or of an older version.
    match replica.fingerprint()?.filter(|mark| mark.seq == cursor) {
        Some(mark) if mark != found => return Err(SyncError::WentBack(cursor)),
        Some(_) => {}
        None => replica.set_fingerprint(found)?,
    }
    Ok(entries.collect())
}

/// Separates a rejection of local changes, with its reason, from other errors.
fn denied(done: Result<(), SyncError>) -> Result<Option<String>, SyncError> {
    match done {
        Err(SyncError::Store(StoreError::Denied(reason))) => Ok(Some(reason)),
        done => done.map(|()| None),
    }
}
