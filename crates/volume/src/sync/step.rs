//! One round: what was under way, what is new in the store, what is new here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::failpoint::{Failpoint, point};
use crate::id::{NodeName, ObjectId, Seq};
use crate::maintenance::GRACE;
use crate::merge::{
    Changes, DirtySet, IdAllocator, Ino, Plan, PlanError, PushPlan, Trees, UploadedContent, apply_entry,
    begin, one, push, resync,
};
use crate::object::{Object, Time};
use crate::store::{LogEntry, MetaStore, StoreError, Transaction};
use crate::sync::followed::VerifiedLog;
use crate::sync::resync::snapshot;
use crate::sync::site::refused;
use crate::sync::{LogFingerprint, Outbox, SyncError, SyncReplica};

/// Entries that are read together.
const PAGE_ENTRIES: usize = 1024;

/// Entries that come into the replica together: users wait as long.
const APPLY_BATCH_ENTRIES: usize = 64;

/// Changes that are looked at together, and commits that are sent together: contents that were brought into the store and
/// not spoken of would be brought there again.
const MAX_BATCH_CHANGES: usize = 1024;
const MAX_BATCH_COMMITS: usize = MAX_BATCH_CHANGES;

/// Contents that were sent, or that the store had, so long ago may be taken to be there: as long again is left until they are
/// freed.
const UPLOAD_TTL: Duration = Duration::from_secs(GRACE.as_secs() / 2);

/// After so long no more contents are sent before what is there is committed.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(GRACE.as_secs() / 24);

/// A clock may have been set back so far.
const MAX_CLOCK_SETBACK: Duration = Duration::from_secs(300);

/// What a round did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// Entries of the log that came in, but for this node's own.
    pub received: usize,
    /// Commits that were accepted.
    pub sent: usize,
    /// Commits that were refused: what they were based on had changed.
    pub refused: usize,
    /// Changes that cannot go now.
    pub blocked: usize,
    /// There may be more to do at once.
    pub more: bool,
    /// What was changed here is not taken: why.
    pub denied: Option<String>,
}

/// Carries changes between a replica and a store, one round after the other.
pub struct Synchroniser<S> {
    replica: S,
    store: Arc<dyn MetaStore>,
    node: NodeName,
    token: Box<dyn FnMut() -> u128 + Send>,
    /// Everything was refused the last time, at this place of the log.
    no_progress_at: Option<Seq>,
    push_paused: Arc<AtomicBool>,
    /// How far the log was verified, of a volume whose log is sealed.
    verified_log: Option<VerifiedLog>,
}

impl<S> std::fmt::Debug for Synchroniser<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Synchroniser").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<S: SyncReplica> Synchroniser<S> {
    /// `token` gives numbers that no other commit of any node has.
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

    /// The replica.
    pub fn replica(&self) -> &S {
        &self.replica
    }

    /// While this is set, nothing more is sent of what is changed here, not even by a round that is under way.
    pub fn push_paused(&self) -> Arc<AtomicBool> {
        self.push_paused.clone()
    }

    /// One round. After an error the next one goes on where this one was.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`](crate::store::StoreError::Unreachable) while off the network; see [`SyncError`].
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
        // Whose changes are not taken hears of those of others all the same.
        step.denied = denied(self.resume(&mut step))?;
        self.pull(&mut step)?;
        if !step.more && step.denied.is_none() {
            step.denied = denied(self.push(&mut step))?;
            step.more &= step.denied.is_none();
        }
        Ok(step)
    }

    /// Sends what is new here.
    fn push(&mut self, step: &mut Step) -> Result<(), SyncError> {
        self.fill_outbox(step)?;
        self.send_outbox(step)?;
        if step.sent > 0 {
            self.pull(step)?;
        }
        Ok(())
    }

    /// Goes on with what an earlier round did not come to an end with.
    fn resume(&mut self, step: &mut Step) -> Result<(), SyncError> {
        let Some(outbox) = self.replica.outbox()?.filter(|outbox| outbox.answered.is_none()) else {
            return Ok(());
        };
        // It was made for the store that was read, and for no other.
        match self.entries(self.replica.cursor()?, 0) {
            Err(SyncError::Store(StoreError::Forgotten(_))) => {}
            checked => drop(checked?),
        }
        if !self.is_fresh(outbox.begun) {
            // Whether it is in the store may be told by the log alone: of many batches the store remembers the last.
            while !self.pull(step)? {}
        }
        self.send_outbox(step)
    }

    /// Whether contents of which a plan that was begun then speaks are in the store for sure.
    fn is_fresh(&self, begun: Option<Time>) -> bool {
        let now = i128::from(self.replica.now().0);
        let age = begun.map(|begun| now - i128::from(begun.0));
        age.is_some_and(|age| {
            -(MAX_CLOCK_SETBACK.as_nanos() as i128) <= age && age <= UPLOAD_TTL.as_nanos() as i128
        })
    }

    /// Sends what is under way, perhaps not for the first time.
    ///
    /// What has been so for too long speaks of contents that may be gone. In its place goes as much that is refused: where the
    /// store has the batch, it answers as it did then; where it does not, it never takes it from now on. What was not taken
    /// is planned anew.
    fn send_outbox(&mut self, step: &mut Step) -> Result<(), SyncError> {
        let Some(mut outbox) = self.replica.outbox()? else { return Ok(()) };
        if outbox.answered.is_some() {
            return Ok(());
        }
        point(Failpoint::OutboxKept)?;
        let is_fresh = self.is_fresh(outbox.begun);
        let instead = if is_fresh { Vec::new() } else { vec![refused(Vec::new()); outbox.items.len()] };
        let items = if is_fresh { &outbox.items } else { &instead };
        let answers = self.store.commit(&self.node, outbox.token, items)?;
        point(Failpoint::OutboxAnswered)?;
        let accepted = answers.iter().filter_map(|answer| answer.as_ref().ok());
        outbox.answered = Some(accepted.copied().max().unwrap_or_default());
        step.sent += answers.iter().filter(|answer| answer.is_ok()).count();
        for (item, refused) in outbox.items.iter().zip(&answers) {
            if let Err(refused) = refused {
                tracing::debug!("refused: {refused}: {item:?}");
                step.refused += 1;
            }
        }
        step.more = true;
        // What was refused never comes back.
        let mut answers = answers.iter();
        outbox.items.retain(|_| answers.next().is_some_and(Result::is_ok));
        self.no_progress_at = match step.sent {
            0 if is_fresh => Some(self.replica.cursor()?),
            _ => None,
        };
        self.replica.set_outbox(Some(&outbox))?;
        Ok(())
    }

    /// What the log has after the last entry that was read.
    ///
    /// Of a sealed log nothing is given that was not verified.
    fn entries(&mut self, cursor: Seq, most: usize) -> Result<Vec<LogEntry>, SyncError> {
        let Self { replica, store, verified_log: followed, .. } = self;
        let Some(log) = store.sealed_log() else {
            let read = |after, most| store.log_since(after, most);
            return read_on(replica, &**store, cursor, most, &read, &LogFingerprint::of);
        };
        let mut verified = match followed.take() {
            Some(followed) => followed,
            None => VerifiedLog::resume(log, replica, cursor)?,
        };
        let read = |after, most| log.stored_since(after, most);
        // Of what users see, as it was before the volume was upgraded.
        let mark = |entry: &LogEntry| LogFingerprint::of(&log.decrypt_entry(entry.clone()));
        let entries = read_on(replica, &**store, cursor, most, &read, &mark)?;
        verified.verify(log.sealer(), &entries)?;
        *followed = Some(verified);
        Ok(entries.into_iter().map(|entry| log.decrypt_entry(entry)).collect())
    }

    /// Follows the log to its end, or for a while: whether that was all.
    fn pull(&mut self, step: &mut Step) -> Result<bool, SyncError> {
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
                    return Err(PlanError::Log(format!("commit {} follows {cursor}", entry.seq)).into());
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

    /// The log does not tell any more what happened since: the whole tree does.
    fn resync(&mut self, step: &mut Step) -> Result<(), SyncError> {
        // Others may have changed again since what was read of them.
        let cursor = self.replica.cursor()?;
        // Nor did the store take what it did not answer for: what others put there has not replaced it.
        let outbox = self.replica.outbox()?.filter(|outbox| outbox.answered.is_some());
        let own = outbox.map_or_else(Vec::new, |outbox| outbox.unread(cursor));
        tracing::info!("the log of the store begins later than what was read of it: its whole tree is read");
        let (snapshot, at) = snapshot(&self.replica, &*self.store, &own)?;
        let theirs = NodeName::store();
        let own = &mut own.as_slice();
        point(Failpoint::TreeRead)?;
        self.replica.change(Some(at), &mut |trees, fresh| {
            match resync(trees, fresh, own, &snapshot, &theirs) {
                // What became of them is not clear: they are as good as somebody else's.
                Err(PlanError::Log(_)) if !own.is_empty() => {
                    *own = &[];
                    resync(trees, fresh, own, &snapshot, &theirs)
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

    /// The top directory was there before the log began.
    fn begin(&self) -> Result<(), SyncError> {
        let Some(stored) = self.store.get(&[ObjectId::ROOT])?.into_iter().next().flatten() else {
            return Ok(());
        };
        self.replica.change(None, &mut |trees, fresh| begin(trees, fresh, &stored))?;
        Ok(())
    }

    /// Makes commits of what was changed here.
    fn fill_outbox(&mut self, step: &mut Step) -> Result<(), SyncError> {
        if self.replica.outbox()?.is_some() {
            return Ok(());
        }
        let cursor = self.replica.cursor()?;
        let together = self.no_progress_at == Some(cursor);
        let mut after = Some(0);
        while let Some(place) = after {
            let (todo, next) =
                self.replica.dirty_set(place, if together { usize::MAX } else { MAX_BATCH_CHANGES })?;
            after = next;
            let begun = self.replica.now();
            let (mut items, held) = self.plan(&todo, begun)?;
            step.blocked += held;
            if items.is_empty() {
                continue;
            }
            if together {
                items = vec![one(items)];
            }
            // What was planned may have been changed after that was wished.
            if self.push_paused.load(Ordering::SeqCst) {
                return Ok(());
            }
            step.more = true;
            // A machine that was asleep while it sent begins anew.
            if self.is_fresh(Some(begun)) {
                let outbox = Outbox { token: (self.token)(), items, answered: None, begun: Some(begun) };
                self.replica.set_outbox(Some(&outbox))?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Notes that objects are as agreed.
    fn agree(&self, same: &[Ino]) -> Result<(), SyncError> {
        if same.is_empty() {
            return Ok(());
        }
        self.replica.change(None, &mut |trees, _| {
            let mut changes = Changes::default();
            for &num in same {
                changes.objects.insert(num, (trees.local(num)?, trees.base(num)?));
            }
            Ok(changes)
        })?;
        Ok(())
    }

    /// Contents are sent while nothing is locked, so the plan is made again once they are there.
    fn plan(&mut self, todo: &DirtySet, begun: Time) -> Result<(Vec<Transaction>, usize), SyncError> {
        let mut contents: BTreeMap<Ino, Option<(u64, UploadedContent)>> = BTreeMap::new();
        loop {
            let mut wanted: BTreeMap<Ino, Object> = BTreeMap::new();
            let mut planned = None;
            self.replica.read(&mut |trees| {
                let result =
                    push(trees, todo, MAX_BATCH_COMMITS, &mut |num, object| match contents.get(&num) {
                        Some(Some((version, sent))) if trees.version(num)? == *version => {
                            Ok(Some(sent.clone()))
                        }
                        Some(_) => Ok(None),
                        None => {
                            wanted.insert(num, object.clone());
                            Ok(None)
                        }
                    })?;
                planned = Some(result);
                Ok(())
            })?;
            if wanted.is_empty() {
                let PushPlan { items, blocked: mut held, same } = planned.unwrap_or_default();
                let mut agreed = Vec::with_capacity(same.len());
                for num in same {
                    // Looked at again until it is closed.
                    if self.replica.is_open_for_writing(num)? { held += 1 } else { agreed.push(num) }
                }
                self.agree(&agreed)?;
                return Ok((items, held));
            }
            // Whole packs would go there to be refused.
            if let Some(reason) = self.store.only_reads() {
                return Err(StoreError::Denied(reason).into());
            }
            let sent_for = self.replica.now().0.saturating_sub(begun.0);
            if i128::from(sent_for) > UPLOAD_TIMEOUT.as_nanos() as i128 {
                contents.extend(wanted.into_keys().map(|num| (num, None)));
                continue;
            }
            contents.extend(self.replica.upload(wanted.into_iter().collect())?);
        }
    }
}

/// Reads on in a log, behind the last entry that was read, which is read along: a store that does not have it went back.
///
/// Then nothing goes on. What this node agreed on with the store that was, and is not in this one, would else come in as
/// deleted by others; and what others commit up to this node's place in the log would never come in.
fn read_on(
    replica: &impl SyncReplica,
    store: &dyn MetaStore,
    cursor: Seq,
    most: usize,
    read: &dyn Fn(Seq, usize) -> Result<Vec<LogEntry>, StoreError>,
    mark_of: &dyn Fn(&LogEntry) -> LogFingerprint,
) -> Result<Vec<LogEntry>, SyncError> {
    if cursor == Seq(0) {
        return Ok(read(cursor, most)?);
    }
    let mut entries = match read(Seq(cursor.0 - 1), most.saturating_add(1)) {
        // It may begin just behind that one.
        Err(StoreError::Forgotten(_)) => {
            let entries = read(cursor, most)?;
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

/// Sets apart that a change is not taken, and why.
fn denied(done: Result<(), SyncError>) -> Result<Option<String>, SyncError> {
    match done {
        Err(SyncError::Store(StoreError::Denied(reason))) => Ok(Some(reason)),
        done => done.map(|()| None),
    }
}
