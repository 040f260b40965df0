//! Push: local changes become commits in the outbox of the replica, and the outbox is sent to the store.
//!
//! The outbox is stored before it is sent, with a token, so that an interrupted push is repeated with the same token: the store
//! returns the answer that it gave before. A batch whose uploads may have been collected meanwhile is not sent any more.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::failpoint::{Failpoint, point};
use crate::maintenance::GRACE_PERIOD;
use crate::merge::{Changes, DirtySet, Ino, PushPlan, UploadSet, combine, push};
use crate::object::Time;
use crate::store::{StoreError, Transaction};
use crate::sync::round::{Step, Synchroniser};
use crate::sync::sync_replica::refused;
use crate::sync::{Outbox, SyncError, SyncReplica};

/// Changes planned together and commits sent together. Contents that are uploaded but not referenced by a commit would be
/// uploaded again.
const MAX_BATCH_CHANGES: usize = 1024;

const MAX_BATCH_COMMITS: usize = MAX_BATCH_CHANGES;

/// Contents uploaded or found in the store within this time are certainly still there: the same time is left until garbage
/// collection may delete them.
const UPLOAD_TTL: Duration = Duration::from_secs(GRACE_PERIOD.as_secs() / 2);

/// After this time a round uploads no more contents, and commits what is uploaded.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(GRACE_PERIOD.as_secs() / 24);

/// How far a clock may have been set back.
const MAX_CLOCK_SETBACK: Duration = Duration::from_secs(300);

impl<S: SyncReplica> Synchroniser<S> {
    /// Pushes local changes.
    pub(super) fn push(&mut self, step: &mut Step) -> Result<(), SyncError> {
        self.fill_outbox(step)?;
        self.send_outbox(step)?;
        if step.sent > 0 {
            self.pull(step)?;
        }
        Ok(())
    }

    /// Completes the push of an earlier round.
    pub(super) fn resume(&mut self, step: &mut Step) -> Result<(), SyncError> {
        let Some(outbox) = self.replica.outbox()?.filter(|outbox| outbox.answered.is_none()) else {
            return Ok(());
        };
        // The outbox is meant only for the store that the log was read from.
        match self.entries(self.replica.cursor()?, 0) {
            Err(SyncError::Store(StoreError::Forgotten(_))) => {}
            checked => drop(checked?),
        }
        if !self.is_fresh(outbox.begun) {
            // Only the log shows whether the store has the batch: of a node's batches the store remembers the last one.
            while !self.pull(step)? {}
        }
        self.send_outbox(step)
    }

    /// Reports whether contents referenced by a plan begun at that time are certainly still in the store.
    fn is_fresh(&self, begun: Option<Time>) -> bool {
        let now = i128::from(self.replica.now().0);
        let age = begun.map(|begun| now - i128::from(begun.0));
        age.is_some_and(|age| {
            -(MAX_CLOCK_SETBACK.as_nanos() as i128) <= age && age <= UPLOAD_TTL.as_nanos() as i128
        })
    }

    /// Sends the batch in the outbox, possibly not for the first time.
    ///
    /// A batch that is pending for too long may reference deleted contents. A batch of as many rejected transactions is sent
    /// in its place: if the store has the original, it repeats the original reply; otherwise it never accepts the original
    /// from now on. Rejected changes are planned again.
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
                tracing::debug!("the store rejected a transaction: {refused}: {item:?}");
                step.refused += 1;
            }
        }
        step.more = true;
        // Rejected commits never appear in the log.
        let mut answers = answers.iter();
        outbox.items.retain(|_| answers.next().is_some_and(Result::is_ok));
        self.no_progress_at = match step.sent {
            0 if is_fresh => Some(self.replica.cursor()?),
            _ => None,
        };
        self.replica.set_outbox(Some(&outbox))?;
        Ok(())
    }

    /// Plans commits for local changes and stores them in the outbox.
    fn fill_outbox(&mut self, step: &mut Step) -> Result<(), SyncError> {
        if self.replica.outbox()?.is_some() {
            return Ok(());
        }
        let cursor = self.replica.cursor()?;
        let together = self.no_progress_at == Some(cursor);
        let mut after = Some(0);
        while let Some(position) = after {
            let (todo, next) =
                self.replica.dirty_set(position, if together { usize::MAX } else { MAX_BATCH_CHANGES })?;
            after = next;
            let begun = self.replica.now();
            let (mut items, blocked) = self.plan(&todo, begun)?;
            step.blocked += blocked;
            if items.is_empty() {
                continue;
            }
            if together {
                items = vec![combine(items)];
            }
            // The plan may include changes made after pushing was paused.
            if self.push_paused.load(Ordering::SeqCst) {
                return Ok(());
            }
            step.more = true;
            // If the machine was suspended during the upload, the next round plans again.
            if self.is_fresh(Some(begun)) {
                let outbox = Outbox { token: (self.token)(), items, answered: None, begun: Some(begun) };
                self.replica.set_outbox(Some(&outbox))?;
            }
            return Ok(());
        }
        Ok(())
    }

    /// Records that objects are equal to their base.
    pub(super) fn agree(&self, same: &[Ino]) -> Result<(), SyncError> {
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

    /// Plans commits for local changes. Contents are uploaded without a lock, so the plan is made again afterwards.
    fn plan(&mut self, todo: &DirtySet, begun: Time) -> Result<(Vec<Transaction>, usize), SyncError> {
        let mut uploads = UploadSet::default();
        loop {
            let mut planned = PushPlan::default();
            self.replica.read(&mut |trees| {
                planned = push(trees, todo, MAX_BATCH_COMMITS, &mut uploads)?;
                Ok(())
            })?;
            let missing = uploads.take_missing();
            if missing.is_empty() {
                let PushPlan { items, mut blocked, same } = planned;
                let mut unchanged = Vec::with_capacity(same.len());
                for num in same {
                    // Checked again until it is closed.
                    if self.replica.is_open_for_writing(num)? { blocked += 1 } else { unchanged.push(num) }
                }
                self.agree(&unchanged)?;
                return Ok((items, blocked));
            }
            // Avoids uploading whole packs only to be rejected.
            if let Some(reason) = self.store.only_reads() {
                return Err(StoreError::Denied(reason).into());
            }
            let elapsed = self.replica.now().0.saturating_sub(begun.0);
            if i128::from(elapsed) > UPLOAD_TIMEOUT.as_nanos() as i128 {
                uploads.add(missing.into_iter().map(|(num, _)| (num, None)));
            } else {
                uploads.add(self.replica.upload(missing)?);
            }
        }
    }
}
