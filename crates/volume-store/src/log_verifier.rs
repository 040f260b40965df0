//! Verifies a sealed log entry by entry, before any of them is applied. It checks the seals, the order and completeness of the
//! entries, and that other nodes were shown the same log. The replica stores its persistent state, so that verification
//! continues after a restart.

use std::collections::{HashMap, VecDeque};

use shunt_volume_types::id::Seq;

use super::seal::{Digest, Sealer, tampered};
use super::{LogEntry, StoreError};

/// Number of recent chain values kept for comparison with what seals attest. Older ones are not compared: the next seal of the
/// same writer attests that part of the log too.
const MAX_RECENT_CHAIN_VALUES: usize = 1 << 16;

/// The verified prefix of a sealed log.
#[derive(Debug, Clone)]
pub struct LogVerifier {
    at: Seq,
    /// Chain values of the last entries, up to `at`.
    recent: VecDeque<Digest>,
    /// Count of each writer's last entry.
    writers: HashMap<Writer, u64>,
    /// Counts changed since the last [`take_unsaved`](Self::take_unsaved).
    changed: HashMap<Writer, u64>,
    /// Started from scratch since the last [`take_unsaved`](Self::take_unsaved).
    is_reset: bool,
}

/// Identifier of a process that commits.
pub type Writer = [u8; 16];

/// The persistent part of a [`LogVerifier`], stored by a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifiedPosition {
    /// The last verified entry.
    pub at: Seq,
    /// The chain value at `at`.
    pub chain: Digest,
    /// Counts of writers: all when loading, the changed ones when storing.
    pub writers: Vec<(Writer, u64)>,
    /// Verification restarted: counts stored earlier are to be replaced.
    pub is_reset: bool,
}

impl From<VerifiedPosition> for LogVerifier {
    fn from(VerifiedPosition { at, chain, writers, is_reset }: VerifiedPosition) -> Self {
        let writers = writers.into_iter().collect();
        Self { at, recent: VecDeque::from([chain]), writers, changed: HashMap::new(), is_reset }
    }
}

impl LogVerifier {
    /// Starts before the first entry.
    pub fn new(sealer: &Sealer) -> Self {
        Self::from(VerifiedPosition { chain: sealer.first(), is_reset: true, ..VerifiedPosition::default() })
    }

    /// Returns what changed since the last call, to be stored.
    pub fn take_unsaved(&mut self) -> VerifiedPosition {
        let writers = std::mem::take(&mut self.changed).into_iter().collect();
        VerifiedPosition {
            at: self.at,
            chain: self.chain(),
            writers,
            is_reset: std::mem::take(&mut self.is_reset),
        }
    }

    /// Returns the last verified entry.
    pub fn at(&self) -> Seq {
        self.at
    }

    /// Returns the chain value at the last verified entry.
    pub fn chain(&self) -> Digest {
        self.recent.back().copied().unwrap_or_default()
    }

    /// Returns the chain value at an entry, if it is still kept.
    fn chain_at(&self, seq: Seq) -> Option<Digest> {
        let back = self.at.0.checked_sub(seq.0)?;
        let n = (self.recent.len() as u64).checked_sub(back + 1)?;
        self.recent.get(n as usize).copied()
    }

    /// Drops chain values that only readers before an entry need.
    pub fn drop_before(&mut self, seq: Seq) {
        while self.recent.len() > MAX_RECENT_CHAIN_VALUES
            && self.at.0 - (self.recent.len() as u64 - 1) < seq.0
        {
            self.recent.pop_front();
        }
    }

    /// Verifies the next entry, or compares one that was verified before.
    ///
    /// # Errors
    /// [`StoreError::Tampered`]: the store changed the entry, omitted one before it, or shows other nodes another log. The
    /// verifier is then unchanged. [`StoreError::Damaged`] for an old entry whose chain value is no longer kept.
    pub fn take(&mut self, sealer: &Sealer, entry: &LogEntry) -> Result<(), StoreError> {
        let seq = entry.seq;
        let seal = sealer.verify(entry)?;
        if seq <= self.at {
            let before = self.chain_at(Seq(seq.0.saturating_sub(1)));
            return match before.zip(self.chain_at(seq)) {
                Some((before, chain)) if sealer.next(&before, entry, seal) == chain => Ok(()),
                Some(_) => {
                    Err(tampered(format_args!("commit {seq} differs from the one that was read before")))
                }
                None => Err(StoreError::Damaged(format!("commit {seq} is too old to be verified"))),
            };
        }
        if seq.0 != self.at.0 + 1 {
            return Err(tampered(format_args!("commit {seq} follows commit {} in the log", self.at)));
        }
        if let Some(seal) = seal {
            if self.writers.get(&seal.writer).is_some_and(|last| seal.count <= *last) {
                return Err(tampered(format_args!(
                    "commit {seq} in the name of {} repeats an older one",
                    entry.node
                )));
            }
            let is_other = self.chain_at(seal.seen).is_some_and(|chain| chain != seal.chain);
            if seal.seen > self.at || is_other {
                return Err(tampered(format_args!(
                    "{} saw another log up to commit {} when it made commit {seq}: commits were \
                        removed, replaced or \
                     reordered",
                    entry.node, seal.seen
                )));
            }
        }
        let chain = sealer.next(&self.chain(), entry, seal);
        if seq == sealer.sealed().from && chain != sealer.sealed().chain {
            return Err(tampered(format_args!(
                "the log up to commit {seq} is not the one that the volume was upgraded with"
            )));
        }
        if let Some(seal) = seal {
            self.writers.insert(seal.writer, seal.count);
            self.changed.insert(seal.writer, seal.count);
        }
        self.at = seq;
        self.recent.push_back(chain);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seal::{RootAttributes, UnsealedChain};
    use crate::{Mutation, Transaction};
    use shunt_volume_types::crypto::VolumeKey;
    use shunt_volume_types::id::{NodeName, ObjectId, OwnerId};
    use shunt_volume_types::object::Time;

    fn sealer(secret: &VolumeKey) -> Sealer {
        let top = RootAttributes { mode: 0o755, owner: OwnerId(0), group: OwnerId(0), modified: Time(0) };
        Sealer::new(secret, 7, UnsealedChain::new(secret, 7).seal(top)).unwrap()
    }

    /// Builds the entry that a store makes of a commit.
    fn entry(sealer: &Sealer, seq: u64) -> LogEntry {
        let node: NodeName = "ant".parse().unwrap();
        let change = vec![Mutation::SetMode(ObjectId(5), seq as u16)];
        let mut items = [Transaction { mutations: change, ..Transaction::default() }];
        sealer.commit(&node, &mut items, |_| ());
        let [Transaction { mutations: change, .. }] = items;
        LogEntry { seq: Seq(seq), node, at: Time(seq as i64), change }
    }

    #[test]
    fn entries_are_taken_in_their_order_and_compared_when_they_come_again() {
        let secret = VolumeKey::random();
        let (one, other) = (sealer(&secret), sealer(&secret));
        let mut verifier = LogVerifier::new(&one);
        let mut entries = Vec::new();
        for seq in 1..=20 {
            let by = if seq % 3 == 0 { &other } else { &one };
            let made = entry(by, seq);
            verifier.take(&other, &made).unwrap();
            if seq % 2 == 0 {
                by.saw(verifier.at(), verifier.chain());
            }
            entries.push(made);
        }
        let refused = |verifier: &mut LogVerifier, entry: &LogEntry| {
            let error = verifier.take(&one, entry).unwrap_err();
            assert!(matches!(error, StoreError::Tampered(_)), "{error:?}");
            assert_eq!(verifier.at(), Seq(20));
        };
        for made in &entries {
            verifier.take(&one, made).unwrap();
            refused(&mut verifier, &LogEntry { at: Time(100), ..made.clone() });
            // The seal stays unchanged.
            let mut changed = made.clone();
            changed.change[0] = Mutation::SetMode(ObjectId(5), 0o4755);
            refused(&mut verifier, &changed);
            refused(&mut verifier, &LogEntry { seq: Seq(21), ..made.clone() });
        }
        refused(&mut verifier, &entry(&one, 22));
        refused(&mut verifier, &entry(&sealer(&VolumeKey::random()), 21));
        // A verifier restored from its persistent part verifies the same.
        let mut again = LogVerifier::from(verifier.take_unsaved());
        refused(&mut again, &LogEntry { seq: Seq(21), ..entries[3].clone() });
        let next = entry(&one, 21);
        again.take(&one, &next).unwrap();
        verifier.take(&one, &next).unwrap();
        assert_eq!(again.chain(), verifier.chain());
        assert_eq!(verifier.take_unsaved().writers.len(), 1, "only new writers are kept");
    }

    #[test]
    fn a_seal_that_attests_another_log_is_refused() {
        let secret = VolumeKey::random();
        let (one, other) = (sealer(&secret), sealer(&secret));
        let mut verifier = LogVerifier::new(&one);
        verifier.take(&one, &entry(&one, 1)).unwrap();
        for (seen, chain) in [(Seq(1), [1; 32]), (Seq(0), verifier.chain()), (Seq(2), verifier.chain())] {
            other.saw(seen, chain);
            let error = verifier.take(&one, &entry(&other, 2)).unwrap_err().to_string();
            assert!(error.contains("ant saw another log"), "{error}");
        }
        other.saw(verifier.at(), verifier.chain());
        verifier.take(&one, &entry(&other, 2)).unwrap();
    }
}
