//! Seals of the log: who has the key of a volume proves each change, and which changes it had seen.
//!
//! Each entry of the log of a sealed volume ends with a [`Seal`]: a MAC, by a key that no store has, over the node, all changes of
//! the entry as they are stored, and three claims of the writer. A writer is one process that commits; its entries are counted,
//! so that none is committed twice. It names the last entry it had verified with the value of the chain there. The chain is a
//! keyed hash over all entries so far, so each seal attests all of the log before that entry: its order, and that nothing
//! was left out or replaced. The store numbers entries; seals prove that it shows all nodes the same ones.
//!
//! Objects and names in the tables of a store are an index of the log: what is read from them is compared with the entries that
//! stated it ([`proof`](super::proof)).

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{LogEntry, Mutation, StoreError, Transaction, codec};
use crate::crypto::VolumeKey;
use crate::id::{NodeName, OwnerId, Seq};
use crate::object::{Object, Time};

/// A keyed hash.
pub type Digest = [u8; 32];

/// The last change of each entry of a sealed log. A store keeps it, and understands nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The process that committed the entry.
    pub writer: [u8; 16],
    /// Goes up with each item that the writer commits, accepted or not.
    pub count: u64,
    /// The last entry that the writer had verified; 0: none.
    pub seen: Seq,
    /// The chain there.
    pub chain: Digest,
    /// Over all that, the node, and the changes before this one.
    pub mac: Digest,
}

/// The attributes that the top directory was made with: no entry of the log states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    /// Permission bits.
    pub mode: u16,
    /// The user.
    pub owner: OwnerId,
    /// The group.
    pub group: OwnerId,
    /// The time of modification.
    pub modified: Time,
}

impl From<&Object> for Top {
    fn from(object: &Object) -> Self {
        let Object { mode, owner, group, modified, .. } = *object;
        Self { mode, owner, group, modified }
    }
}

/// From where on the log of a volume is sealed: in its description, proved by the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Entries up to this one, of a volume that was upgraded, have no seals: who upgraded it vouches for them.
    pub from: Seq,
    /// The chain there.
    pub chain: Digest,
    /// What the log does not state.
    pub top: Top,
    /// Over all that and the id of the volume.
    mac: Digest,
}

/// Says of which volume something was tampered with, and what to do.
pub(crate) fn tampered(what: impl std::fmt::Display) -> StoreError {
    StoreError::Tampered(what.to_string())
}

/// What of an item's changes a seal is about.
#[derive(Serialize)]
struct Claims<'a> {
    volume: u128,
    node: &'a NodeName,
    writer: [u8; 16],
    count: u64,
    seen: Seq,
    chain: Digest,
    change: &'a [Mutation],
}

/// The keys of seals.
#[derive(Clone)]
struct Keys {
    volume: u128,
    macs: [u8; 32],
    chains: [u8; 32],
}

impl Keys {
    fn new(secret: &VolumeKey, volume: u128) -> Self {
        Self {
            volume,
            macs: secret.derive("shunt volume 3: seals of the log"),
            chains: secret.derive("shunt volume 3: chain of the log"),
        }
    }

    /// The chain before the first entry.
    fn first(&self) -> Digest {
        *blake3::keyed_hash(&self.chains, &self.volume.to_le_bytes()).as_bytes()
    }

    /// The chain after an entry. A seal that was verified stands for all that it is about.
    fn next(&self, chain: &Digest, entry: &LogEntry, seal: Option<&Seal>) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.chains);
        hasher.update(&[u8::from(seal.is_some())]).update(chain);
        match seal {
            Some(seal) => {
                hasher.update(&entry.seq.0.to_le_bytes());
                hasher.update(&entry.at.0.to_le_bytes());
                hasher.update(&seal.mac)
            }
            None => hasher.update(&codec::encode(entry)),
        };
        *hasher.finalize().as_bytes()
    }

    fn mac<T: Serialize>(&self, what: &str, claims: &T) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.macs);
        hasher.update(&(what.len() as u64).to_le_bytes()).update(what.as_bytes());
        hasher.update(&codec::encode(claims)).finalize()
    }

    fn mac_of_log(&self, from: Seq, chain: &Digest, top: Top) -> blake3::Hash {
        self.mac("log", &(self.volume, from, chain, top))
    }
}

/// What this process has committed, and what it had seen.
struct Writing {
    count: u64,
    seen: Seq,
    chain: Digest,
}

/// Seals what this process commits to a volume, and verifies what others did.
pub struct Sealer {
    keys: Keys,
    sealed: Sealed,
    writer: [u8; 16],
    /// Locked while a batch is committed: entries of a writer are in the order of their counts.
    writing: Mutex<Writing>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("sealed", &self.sealed).finish_non_exhaustive()
    }
}

impl Sealer {
    /// # Errors
    /// [`StoreError::Tampered`] where the description was not made with the key of the volume.
    pub fn new(secret: &VolumeKey, volume: u128, sealed: Sealed) -> Result<Self, StoreError> {
        let keys = Keys::new(secret, volume);
        if keys.mac_of_log(sealed.from, &sealed.chain, sealed.top) != blake3::Hash::from_bytes(sealed.mac) {
            return Err(tampered("the description of the volume was not made with its key"));
        }
        let writing = Mutex::new(Writing { count: 0, seen: Seq(0), chain: keys.first() });
        Ok(Self { keys, sealed, writer: rand::random(), writing })
    }

    /// From where on the log is sealed.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// The chain before the first entry.
    pub fn first(&self) -> Digest {
        self.keys.first()
    }

    /// The chain after an entry, with what [`verify`](Self::verify) gave for it.
    pub fn next(&self, chain: &Digest, entry: &LogEntry, seal: Option<&Seal>) -> Digest {
        self.keys.next(chain, entry, seal)
    }

    /// What this process commits from now on attests the log up to an entry.
    pub fn saw(&self, seen: Seq, chain: Digest) {
        let mut writing = self.writing.lock();
        (writing.seen, writing.chain) = (seen, chain);
    }

    /// Seals items, and has them committed before any others of this process.
    pub(super) fn commit<T>(
        &self,
        node: &NodeName,
        items: &mut [Transaction],
        commit: impl FnOnce(&[Transaction]) -> T,
    ) -> T {
        let mut writing = self.writing.lock();
        for item in &mut *items {
            writing.count += 1;
            let mut seal = Seal {
                writer: self.writer,
                count: writing.count,
                seen: writing.seen,
                chain: writing.chain,
                mac: Digest::default(),
            };
            seal.mac = *self.mac(node, &seal, &item.mutations).as_bytes();
            item.mutations.push(Mutation::Seal(seal));
        }
        commit(items)
    }

    fn mac(&self, node: &NodeName, seal: &Seal, change: &[Mutation]) -> blake3::Hash {
        let Seal { writer, count, seen, chain, .. } = *seal;
        self.keys.mac("entry", &Claims { volume: self.keys.volume, node, writer, count, seen, chain, change })
    }

    /// The seal of an entry; `None` of one that is vouched for without one.
    ///
    /// # Errors
    /// [`StoreError::Tampered`] where the key of the volume did not make it, or it is about other changes.
    pub fn verify<'a>(&self, entry: &'a LogEntry) -> Result<Option<&'a Seal>, StoreError> {
        if entry.seq <= self.sealed.from {
            return Ok(None);
        }
        let Some((Mutation::Seal(seal), change)) = entry.change.split_last() else {
            return Err(tampered(format_args!(
                "commit {} in the name of {} was not sealed with the key of the volume",
                entry.seq, entry.node
            )));
        };
        // Compared in constant time.
        if self.mac(&entry.node, seal, change) != blake3::Hash::from_bytes(seal.mac) {
            return Err(tampered(format_args!(
                "commit {} in the name of {} was changed after it was sealed",
                entry.seq, entry.node
            )));
        }
        Ok(Some(seal))
    }
}

/// What the log of a volume is sealed by that has no seals yet.
pub(crate) struct Vouching {
    keys: Keys,
    at: Seq,
    chain: Digest,
}

impl Vouching {
    pub fn new(secret: &VolumeKey, volume: u128) -> Self {
        let keys = Keys::new(secret, volume);
        let chain = keys.first();
        Self { keys, at: Seq(0), chain }
    }

    /// Up to which entry the log was read.
    pub fn at(&self) -> Seq {
        self.at
    }

    /// The next entry of the log.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] where it is another one.
    pub fn add(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        if entry.seq.0 != self.at.0 + 1 {
            return Err(StoreError::Damaged(format!("commit {} follows {} in its log", entry.seq, self.at)));
        }
        self.chain = self.keys.next(&self.chain, entry, None);
        self.at = entry.seq;
        Ok(())
    }

    /// Seals the log from here on.
    pub fn seal(&self, top: Top) -> Sealed {
        let mac = *self.keys.mac_of_log(self.at, &self.chain, top).as_bytes();
        Sealed { from: self.at, chain: self.chain, top, mac }
    }
}
