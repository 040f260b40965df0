//! A sealed log on its way into a replica: nothing of it is planned with before it was verified.

use crate::id::Seq;
use crate::store::ledger::Ledger;
use crate::store::seal::Sealer;
use crate::store::{LogEntry, SealedLog, StoreError};
use crate::sync::{SyncError, SyncReplica};

/// Entries that are read together.
const PAGE_ENTRIES: u64 = 1024;

/// How far a sealed log was verified: never less far than it was applied.
#[derive(Debug)]
pub(super) struct VerifiedLog {
    ledger: Ledger,
    /// Where it was when the replica kept it.
    stored: Seq,
}

impl VerifiedLog {
    /// As the replica kept it, or from the beginning, and up to what was applied. All of the log that has no seals is verified
    /// at once: what vouches for it stands at its end.
    ///
    /// # Errors
    /// [`StoreError::Tampered`]; those of the store and of the replica.
    pub fn resume(log: &dyn SealedLog, replica: &impl SyncReplica, cursor: Seq) -> Result<Self, SyncError> {
        let sealer = log.sealer();
        let kept = replica.ledger()?.filter(|kept| kept.at <= cursor);
        let mut ledger = kept.map_or_else(|| Ledger::new(sealer), Ledger::from);
        let kept = ledger.at();
        let until = cursor.max(sealer.sealed().from);
        while ledger.at() < until {
            let most = (until.0 - ledger.at().0).min(PAGE_ENTRIES);
            let entries = log.stored_since(ledger.at(), most as usize)?;
            if entries.is_empty() {
                return match ledger.at() < cursor {
                    // Told with what to do by who compares the last entry.
                    true => Err(SyncError::WentBack(cursor)),
                    false => Err(StoreError::Tampered(format!(
                        "its log ends with commit {}, and there were {until} when it was upgraded",
                        ledger.at()
                    ))
                    .into()),
                };
            }
            entries.iter().try_for_each(|entry| ledger.take(sealer, entry))?;
        }
        Ok(Self { ledger, stored: kept })
    }

    /// Verifies what was read.
    ///
    /// # Errors
    /// [`StoreError::Tampered`].
    pub fn verify(&mut self, sealer: &Sealer, entries: &[LogEntry]) -> Result<(), StoreError> {
        entries.iter().try_for_each(|entry| self.ledger.take(sealer, entry))
    }

    /// All up to an entry was applied: the replica keeps that it was verified, and what is committed from now on attests it.
    ///
    /// # Errors
    /// Those of the replica.
    pub fn applied(
        &mut self,
        sealer: &Sealer,
        replica: &impl SyncReplica,
        cursor: Seq,
    ) -> Result<(), SyncError> {
        self.ledger.forget_before(Seq(cursor.0.saturating_sub(1)));
        if self.ledger.at() == cursor {
            sealer.saw(cursor, self.ledger.chain());
            if self.stored != cursor {
                replica.set_ledger(&self.ledger.to_keep())?;
                self.stored = cursor;
            }
        }
        Ok(())
    }
}
