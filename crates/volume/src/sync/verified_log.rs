//! Verifies a sealed log: no entry is used before its seal is verified.

use crate::id::Seq;
use crate::store::log_verifier::LogVerifier;
use crate::store::seal::Sealer;
use crate::store::{LogEntry, SealedLog, StoreError};
use crate::sync::{SyncError, SyncReplica};

/// Entries read in one request.
const PAGE_ENTRIES: u64 = 1024;

/// The verified position of a sealed log, never behind the applied position.
#[derive(Debug)]
pub(super) struct VerifiedLog {
    verifier: LogVerifier,
    /// The position last stored in the replica.
    stored: Seq,
}

impl VerifiedLog {
    /// Resumes at the position stored in the replica, or at the beginning, and verifies up to the applied position. The part
    /// of the log without seals is verified at once, because it is authenticated only at its end.
    ///
    /// # Errors
    /// [`StoreError::Tampered`]; the errors of the store and of the replica.
    pub fn resume(log: &dyn SealedLog, replica: &impl SyncReplica, cursor: Seq) -> Result<Self, SyncError> {
        let sealer = log.sealer();
        let position = replica.verified_position()?.filter(|position| position.at <= cursor);
        let mut verifier = position.map_or_else(|| LogVerifier::new(sealer), LogVerifier::from);
        let stored = verifier.at();
        let until = cursor.max(sealer.sealed().from);
        while verifier.at() < until {
            let limit = (until.0 - verifier.at().0).min(PAGE_ENTRIES);
            let entries = log.stored_since(verifier.at(), limit as usize)?;
            if entries.is_empty() {
                return match verifier.at() < cursor {
                    // The error of a mismatch at the last entry, whose message says what to do.
                    true => Err(SyncError::WentBack(cursor)),
                    false => Err(StoreError::Tampered(format!(
                        "the log ends at commit {}, but had {until} commits when the volume was upgraded",
                        verifier.at()
                    ))
                    .into()),
                };
            }
            entries.iter().try_for_each(|entry| verifier.take(sealer, entry))?;
        }
        Ok(Self { verifier, stored })
    }

    /// Verifies entries read from the log.
    ///
    /// # Errors
    /// [`StoreError::Tampered`].
    pub fn verify(&mut self, sealer: &Sealer, entries: &[LogEntry]) -> Result<(), StoreError> {
        entries.iter().try_for_each(|entry| self.verifier.take(sealer, entry))
    }

    /// Stores the verified position once all entries up to `cursor` are applied. Later commits attest it.
    ///
    /// # Errors
    /// Returns the errors of the replica.
    pub fn applied(
        &mut self,
        sealer: &Sealer,
        replica: &impl SyncReplica,
        cursor: Seq,
    ) -> Result<(), SyncError> {
        self.verifier.drop_before(Seq(cursor.0.saturating_sub(1)));
        if self.verifier.at() == cursor {
            sealer.saw(cursor, self.verifier.chain());
            if self.stored != cursor {
                replica.set_verified_position(&self.verifier.take_unsaved())?;
                self.stored = cursor;
            }
        }
        Ok(())
    }
}
