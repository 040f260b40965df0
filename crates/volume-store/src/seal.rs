//! Seals of the log: authenticate each commit, and the log that its writer had verified, with the key of the volume.
//!
//! Each entry of a sealed volume's log ends with a [`Seal`]: a MAC, by a key that no store has, over the node, all changes of
//! the entry in their stored form, and three claims of the writer. A writer is one process that commits; it counts its entries,
//! so that none can be replayed. It names the last entry that it had verified, with the chain value there. The chain is a keyed
//! hash over all entries up to this one, so each seal attests the whole log up to that entry: its order, and that nothing was omitted
//! or replaced. The store numbers the entries; seals prove that it shows all nodes the same ones.
//!
//! Objects and names in the tables of a store are an index of the log: data read from them are compared with the entries that
//! set them ([`proof`](crate::proof)).

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shunt_volume_types::crypto::VolumeKey;
use shunt_volume_types::id::{NodeName, OwnerId, Seq};
use shunt_volume_types::object::{Object, Time};

use super::{LogEntry, Mutation, StoreError, Transaction, codec};

/// A keyed hash.
pub type Digest = [u8; 32];

/// The last mutation of each entry of a sealed log; opaque to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seal {
    /// The process that committed the entry.
    pub writer: [u8; 16],
    /// Incremented with each transaction that the writer commits, accepted or not.
    pub count: u64,
    /// The last entry that the writer had verified; 0: none.
    pub seen: Seq,
    /// The chain value at `seen`.
    pub chain: Digest,
    /// Covers the fields above, the node, and the mutations before this one.
    pub mac: Digest,
}

/// The initial attributes of the root directory, which no log entry sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootAttributes {
    /// Permission bits.
    pub mode: u16,
    /// Owning user.
    pub owner: OwnerId,
    /// Owning group.
    pub group: OwnerId,
    /// Modification time.
    pub modified: Time,
}

impl From<&Object> for RootAttributes {
    fn from(object: &Object) -> Self {
        let Object { mode, owner, group, modified, .. } = *object;
        Self { mode, owner, group, modified }
    }
}

/// The start of the sealed part of a log: stored in the volume's descriptor, authenticated by the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// Entries up to this one have no seals, in a volume that was upgraded: `chain` authenticates them as a whole.
    pub from: Seq,
    /// The chain value at `from`.
    pub chain: Digest,
    /// Initial attributes of the root directory.
    pub top: RootAttributes,
    /// Covers the fields above and the id of the volume.
    mac: Digest,
}

/// Returns a [`StoreError::Tampered`].
pub fn tampered(what: impl std::fmt::Display) -> StoreError {
    StoreError::Tampered(what.to_string())
}

/// The data that a seal's MAC covers.
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

    /// Returns the chain value before the first entry.
    fn first(&self) -> Digest {
        *blake3::keyed_hash(&self.chains, &self.volume.to_le_bytes()).as_bytes()
    }

    /// Returns the chain value after an entry. A verified seal's MAC stands for all that it covers.
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

    fn mac_of_log(&self, from: Seq, chain: &Digest, top: RootAttributes) -> blake3::Hash {
        self.mac("log", &(self.volume, from, chain, top))
    }
}

/// The count of this process's entries, and the last entry that it verified.
struct Writing {
    count: u64,
    seen: Seq,
    chain: Digest,
}

/// Seals what this process commits to a volume, and verifies the seals of others.
pub struct Sealer {
    keys: Keys,
    sealed: Sealed,
    writer: [u8; 16],
    /// Locked during a commit: entries of a writer are in the order of their counts.
    writing: Mutex<Writing>,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("sealed", &self.sealed).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Creates the sealer of a volume.
    ///
    /// # Errors
    /// [`StoreError::Tampered`] if the descriptor was not made with the key of the volume.
    pub fn new(secret: &VolumeKey, volume: u128, sealed: Sealed) -> Result<Self, StoreError> {
        let keys = Keys::new(secret, volume);
        if keys.mac_of_log(sealed.from, &sealed.chain, sealed.top) != blake3::Hash::from_bytes(sealed.mac) {
            return Err(tampered("the volume descriptor was not made with the key of the volume"));
        }
        let writing = Mutex::new(Writing { count: 0, seen: Seq(0), chain: keys.first() });
        Ok(Self { keys, sealed, writer: rand::random(), writing })
    }

    /// Returns the start of the sealed part of the log.
    pub fn sealed(&self) -> &Sealed {
        &self.sealed
    }

    /// Returns the chain value before the first entry.
    pub fn first(&self) -> Digest {
        self.keys.first()
    }

    /// Returns the chain value after an entry, given the seal that [`verify`](Self::verify) returned for it.
    pub fn next(&self, chain: &Digest, entry: &LogEntry, seal: Option<&Seal>) -> Digest {
        self.keys.next(chain, entry, seal)
    }

    /// Records the last verified entry, which later seals of this process attest.
    pub fn saw(&self, seen: Seq, chain: Digest) {
        let mut writing = self.writing.lock();
        (writing.seen, writing.chain) = (seen, chain);
    }

    /// Seals transactions and commits them; commits of this process are serialised.
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

    /// Verifies an entry and returns its seal; `None` for one that precedes the sealed part of the log.
    ///
    /// # Errors
    /// [`StoreError::Tampered`] if it was not sealed with the key of the volume, or was changed after it.
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
        // Constant-time comparison.
        if self.mac(&entry.node, seal, change) != blake3::Hash::from_bytes(seal.mac) {
            return Err(tampered(format_args!(
                "commit {} in the name of {} was changed after it was sealed",
                entry.seq, entry.node
            )));
        }
        Ok(Some(seal))
    }
}

/// Computes the chain over an unsealed log, to seal it from its end on.
pub struct UnsealedChain {
    keys: Keys,
    at: Seq,
    chain: Digest,
}

impl UnsealedChain {
    /// Derives the key from the key of the volume and its id.
    pub fn new(secret: &VolumeKey, volume: u128) -> Self {
        let keys = Keys::new(secret, volume);
        let chain = keys.first();
        Self { keys, at: Seq(0), chain }
    }

    /// Returns the last entry that was added.
    pub fn at(&self) -> Seq {
        self.at
    }

    /// Adds the next entry of the log.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if the entry's number is not the next one.
    pub fn add(&mut self, entry: &LogEntry) -> Result<(), StoreError> {
        if entry.seq.0 != self.at.0 + 1 {
            return Err(StoreError::Damaged(format!(
                "commit {} follows commit {} in the log",
                entry.seq, self.at
            )));
        }
        self.chain = self.keys.next(&self.chain, entry, None);
        self.at = entry.seq;
        Ok(())
    }

    /// Returns the start of the sealed log at the current entry.
    pub fn seal(&self, top: RootAttributes) -> Sealed {
        let mac = *self.keys.mac_of_log(self.at, &self.chain, top).as_bytes();
        Sealed { from: self.at, chain: self.chain, top, mac }
    }
}
