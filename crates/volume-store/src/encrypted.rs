//! A decorator that encrypts the metadata before the store sees them and decrypts what it returns. In a volume whose log is
//! [sealed](super::seal), data from the store are also verified against the seals.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shunt_volume_types::id::{NodeName, ObjectId, Seq};
use shunt_volume_types::object::{ChunkId, LinkName, StoredLink, Time, VersionedObject};

use super::history::{History, PastLink, Version};
use super::metadata_cipher::MetadataCipher;
use super::proof::{Proofs, log_since};
use super::seal::Sealer;
use super::{
    ChunkLocation, LeaseRequest, LeaseResponse, LogEntry, MetaStore, Page, Rejected, SealedLog, StoreError,
    Transaction,
};

/// A store with encrypted names, as seen by a holder of the key.
pub struct EncryptedStore {
    store: Arc<dyn MetaStore>,
    cipher: MetadataCipher,
    /// `None`: the log is not sealed.
    log: Option<Log>,
    proofs: Proofs,
    /// All names were scanned once for undecryptable ones.
    names_scanned: AtomicBool,
}

/// The raw log of a volume whose log is sealed.
struct Log {
    store: Arc<dyn MetaStore>,
    cipher: MetadataCipher,
    sealer: Sealer,
}

/// Page size of the scan for undecryptable names.
const SCAN_PAGE_ROWS: usize = 1000;

impl EncryptedStore {
    /// Wraps a store; `cipher` encrypts its metadata.
    pub fn new(store: Arc<dyn MetaStore>, cipher: MetadataCipher) -> Self {
        Self { store, cipher, log: None, proofs: Proofs::default(), names_scanned: AtomicBool::new(false) }
    }

    /// Adds verification of a sealed log.
    pub fn sealed(self, sealer: Sealer) -> Self {
        let (store, cipher) = (self.store.clone(), self.cipher.clone());
        Self { log: Some(Log { store, cipher, sealer }), ..self }
    }

    /// Verifies objects and names in their stored form, in a volume with a sealed log.
    fn prove<'a>(
        &self,
        objects: impl Iterator<Item = &'a VersionedObject> + Clone,
        links: impl Iterator<Item = &'a StoredLink> + Clone,
    ) -> Result<(), StoreError> {
        let Some(log) = &self.log else { return Ok(()) };
        self.proofs.prove(&*self.store, &log.sealer, objects, links)
    }

    fn proven_objects(
        &self,
        found: Vec<Option<VersionedObject>>,
    ) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.prove(found.iter().flatten(), std::iter::empty())?;
        Ok(self.each(found, stored))
    }

    fn proven_past(&self, found: Vec<PastLink>) -> Result<Vec<PastLink>, StoreError> {
        self.prove(std::iter::empty(), found.iter().map(|past| &past.link))?;
        Ok(self.each(found, past_link))
    }

    fn past(&self) -> Result<&dyn History, StoreError> {
        let none = || StoreError::Denied("this store keeps no history".to_owned());
        self.store.history().ok_or_else(none)
    }

    fn each<T, U>(&self, all: Vec<T>, show: impl Fn(&MetadataCipher, T) -> U) -> Vec<U> {
        all.into_iter().map(|one| show(&self.cipher, one)).collect()
    }

    /// Scans all names once, to learn the undecryptable ones: their display names may have been returned by an earlier process.
    fn load_undecryptable_names(&self) -> Result<(), StoreError> {
        let mut from = Some(ObjectId(0)).filter(|_| !self.names_scanned.load(Ordering::Relaxed));
        while let Some(at) = from {
            from = self.scan(at, SCAN_PAGE_ROWS)?.next;
        }
        self.names_scanned.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn stored(cipher: &MetadataCipher, stored: Option<VersionedObject>) -> Option<VersionedObject> {
    stored.map(|stored| cipher.decrypt_stored(stored))
}

fn past_link(cipher: &MetadataCipher, past: PastLink) -> PastLink {
    PastLink { link: cipher.decrypt_link(past.link), ..past }
}

impl MetaStore for EncryptedStore {
    fn head(&self) -> Result<Seq, StoreError> {
        self.store.head()
    }

    fn commit(
        &self,
        node: &NodeName,
        token: u128,
        items: &[Transaction],
    ) -> Result<Vec<Result<Seq, Rejected>>, StoreError> {
        if items.iter().any(|item| self.cipher.lacks_name(item)) {
            self.load_undecryptable_names()?;
        }
        let mut hidden: Vec<Transaction> = items.iter().map(|item| self.cipher.encrypt_item(item)).collect();
        match &self.log {
            Some(log) => {
                log.sealer.commit(node, &mut hidden, |sealed| self.store.commit(node, token, sealed))
            }
            None => self.store.commit(node, token, &hidden),
        }
    }

    fn only_reads(&self) -> Option<String> {
        self.store.only_reads()
    }

    fn get(&self, ids: &[ObjectId]) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.proven_objects(self.store.get(ids)?)
    }

    fn scan(&self, from: ObjectId, limit: usize) -> Result<Page, StoreError> {
        Ok(self.cipher.decrypt_page(self.store.scan(from, limit)?))
    }

    fn log_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        let entries = self.store.log_since(after, limit)?;
        if let Some(log) = &self.log {
            self.proofs.verify(&*self.store, &log.sealer, &entries)?;
        }
        Ok(self.each(entries, MetadataCipher::decrypt_entry))
    }

    fn locate_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<Option<ChunkLocation>>, StoreError> {
        self.store.locate_chunks(chunks)
    }

    fn has_chunks(&self, chunks: &[ChunkId]) -> Result<Vec<bool>, StoreError> {
        self.store.has_chunks(chunks)
    }

    fn sealed_log(&self) -> Option<&dyn SealedLog> {
        self.log.as_ref().map(|log| log as &dyn SealedLog)
    }

    fn history(&self) -> Option<&dyn History> {
        self.store.history().is_some().then_some(self)
    }

    fn wait(&self, after: Seq, at_most: Duration) -> Result<bool, StoreError> {
        self.store.wait(after, at_most)
    }

    fn lease(&self, node: &NodeName, request: &LeaseRequest) -> Result<LeaseResponse, StoreError> {
        self.store.lease(node, request)
    }

    fn wait_lease(&self, after: u64, acks: Option<u64>, at_most: Duration) -> Result<bool, StoreError> {
        self.store.wait_lease(after, acks, at_most)
    }
}

impl SealedLog for Log {
    fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    fn stored_since(&self, after: Seq, limit: usize) -> Result<Vec<LogEntry>, StoreError> {
        log_since(&*self.store, after, limit)
    }

    fn decrypt_entry(&self, entry: LogEntry) -> LogEntry {
        self.cipher.decrypt_entry(entry)
    }
}

impl History for EncryptedStore {
    fn complete_since(&self) -> Result<Seq, StoreError> {
        self.past()?.complete_since()
    }

    fn seq_at(&self, time: Time) -> Option<Result<Seq, StoreError>> {
        match self.past() {
            Ok(past) => past.seq_at(time),
            Err(error) => Some(Err(error)),
        }
    }

    fn object_at(&self, id: ObjectId, at: Seq) -> Result<Option<VersionedObject>, StoreError> {
        Ok(self.objects_at(&[id], at)?.pop().flatten())
    }

    fn objects_at(&self, ids: &[ObjectId], at: Seq) -> Result<Vec<Option<VersionedObject>>, StoreError> {
        self.proven_objects(self.past()?.objects_at(ids, at)?)
    }

    fn link_at(&self, name: &LinkName, at: Seq) -> Result<Option<StoredLink>, StoreError> {
        let link = self.past()?.link_at(&self.cipher.encrypt_name(name), at)?;
        self.prove(std::iter::empty(), link.iter())?;
        Ok(link.map(|link| self.cipher.decrypt_link(link)))
    }

    /// Ordered by the encrypted names: arbitrary, but stable.
    fn links_at(
        &self,
        parent: ObjectId,
        at: Seq,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<StoredLink>, StoreError> {
        let hidden = match after {
            b"" => Vec::new(),
            name => self.cipher.encrypt_name(&LinkName { parent, name: name.to_vec() }).name,
        };
        let links = self.past()?.links_at(parent, at, &hidden, limit)?;
        self.prove(std::iter::empty(), links.iter())?;
        Ok(self.each(links, MetadataCipher::decrypt_link))
    }

    fn versions(&self, id: ObjectId) -> Result<Vec<Version>, StoreError> {
        let show = |cipher: &MetadataCipher, version: Version| Version {
            stored: cipher.decrypt_stored(version.stored),
            ..version
        };
        let versions = self.past()?.versions(id)?;
        self.prove(versions.iter().map(|version| &version.stored), std::iter::empty())?;
        Ok(self.each(versions, show))
    }

    fn past_of_name(&self, name: &LinkName) -> Result<Vec<PastLink>, StoreError> {
        self.proven_past(self.past()?.past_of_name(&self.cipher.encrypt_name(name))?)
    }

    fn past_names(&self, ids: &[ObjectId]) -> Result<Vec<PastLink>, StoreError> {
        self.proven_past(self.past()?.past_names(ids)?)
    }
}
