//! A service manager as the guardian: it stores the descriptors of a session, and starts the next server itself.
//!
//! The service manager only has names for descriptors, so that a name encodes the key and a generation: `d0.1` is the second
//! descriptor stored as device 0. A descriptor is stored before the one that it replaces is removed, and of two the newer counts.
//! A [`Record`] among them holds the rest.
//!
//! Descriptors of the file system with ids of [`FIRST_DEFERRED_ID`] and more, and those of inodes, come and go with every file
//! that is unlinked while in use. They stay in this process until a planned restart, because each message costs the service
//! manager a wakeup. A crash loses them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use parking_lot::Mutex;

use super::GuardianError;
use super::fd_store::{DescriptorClass, Key, StoredDescriptors};
use super::log::{log, now};
use super::record::Record;
use super::wire::Message;

/// Descriptors of the file system from this id on are handed over by a planned restart only.
pub(super) const FIRST_DEFERRED_ID: u64 = 1 << 32;
/// Maximum number of descriptors that are handed over by a planned restart. Their names are passed to the next server in one
/// variable of its environment, which the kernel limits to 128 KiB.
const MAX_DEFERRED: usize = 3800;
/// Name of the record in the store.
const RECORD: &str = "record";
const CLASSES: [(char, DescriptorClass); 5] = [
    ('d', DescriptorClass::Device),
    ('s', DescriptorClass::State),
    ('l', DescriptorClass::Log),
    ('f', DescriptorClass::FileSystem),
    ('n', DescriptorClass::Node),
];

/// Stores descriptors outside of this process, by name, for the process that the service manager starts next.
pub trait DescriptorStore: fmt::Debug + Send + Sync {
    /// Stores a descriptor. Names need not be unique.
    ///
    /// # Errors
    /// The service manager cannot be reached.
    fn store(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()>;

    /// Drops all descriptors of this name.
    ///
    /// # Errors
    /// The service manager cannot be reached.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// The server's link to a service manager.
#[derive(Debug)]
pub(super) struct ManagedLink {
    store: Box<dyn DescriptorStore>,
    session: Mutex<StoredSession>,
}

#[derive(Debug)]
struct StoredSession {
    record: Record,
    /// The generation of each stored descriptor.
    generations: BTreeMap<Key, u32>,
    deferred: StoredDescriptors,
    /// A planned restart is under way: nothing is deferred any more.
    handing_over: bool,
}

impl ManagedLink {
    /// The link of a new mount.
    pub(super) fn new(store: Box<dyn DescriptorStore>, arguments: Vec<OsString>) -> io::Result<Self> {
        let record = Record::create(arguments)?;
        let session = StoredSession {
            record,
            generations: BTreeMap::new(),
            deferred: StoredDescriptors::new(),
            handing_over: false,
        };
        Ok(Self { store, session: Mutex::new(session) })
    }

    /// The link of a server that takes over.
    pub(super) fn resumed(
        store: Box<dyn DescriptorStore>,
        record: Record,
        generations: BTreeMap<Key, u32>,
    ) -> Self {
        let deferred = StoredDescriptors::new();
        let session = StoredSession { record, generations, deferred, handing_over: false };
        Self { store, session: Mutex::new(session) }
    }

    /// Does what a guardian process does on this message.
    pub(super) fn apply(
        &self,
        message: &Message,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(), GuardianError> {
        let mut session = self.session.lock();
        let done = match (message, descriptor) {
            (Message::Store(key), Some(descriptor)) => session.keep(&*self.store, *key, descriptor),
            (Message::Remove(key), _) => session.remove(&*self.store, *key),
            (Message::Mounted { token, mark, path }, _) => {
                session.record.set_mount(*token, *mark, path.clone())
            }
            // From here on the next server finds a mount.
            (Message::Arm, _) => self.store.store(RECORD, session.record.as_fd()),
            (Message::Serving, _) => {
                session.record.header.attempts = 0;
                session.record.header.planned = false;
                session.record.header.gone = 0;
                session.record.write_header()
            }
            (Message::Release { .. } | Message::Ending, _) => self.store.remove(RECORD),
            _ => Ok(()),
        };
        done.map_err(GuardianError::Store)
    }

    /// Records that this server ends for a planned restart.
    pub(super) fn begin_restart(&self) -> io::Result<()> {
        let mut session = self.session.lock();
        session.record.header.planned = true;
        session.record.header.gone = now();
        session.record.write_header()
    }

    /// Stores what was deferred. This process must exit next.
    pub(super) fn finish_restart(&self) -> io::Result<()> {
        let mut session = self.session.lock();
        session.handing_over = true;
        let deferred = std::mem::take(&mut session.deferred);
        if deferred.len() > MAX_DEFERRED {
            let lost = deferred.len() - MAX_DEFERRED;
            log(&format!("cannot hand over {lost} unlinked files: the service manager takes {MAX_DEFERRED}"));
        }
        for (key, descriptor) in deferred.into_iter().take(MAX_DEFERRED) {
            session.store(&*self.store, key, descriptor.as_fd())?;
        }
        Ok(())
    }
}

impl StoredSession {
    fn keep(&mut self, store: &dyn DescriptorStore, key: Key, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        if is_deferred(key) && !self.handing_over {
            self.deferred.insert(key, descriptor.try_clone_to_owned()?);
            return Ok(());
        }
        self.store(store, key, descriptor)
    }

    fn store(&mut self, store: &dyn DescriptorStore, key: Key, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let replaced = self.generations.get(&key).copied();
        let generation = replaced.map_or(0, |generation| generation.wrapping_add(1));
        store.store(&name(key, generation), descriptor)?;
        self.generations.insert(key, generation);
        replaced.map_or(Ok(()), |generation| store.remove(&name(key, generation)))
    }

    fn remove(&mut self, store: &dyn DescriptorStore, key: Key) -> io::Result<()> {
        self.deferred.remove(&key);
        let generation = self.generations.remove(&key);
        generation.map_or(Ok(()), |generation| store.remove(&name(key, generation)))
    }
}

fn is_deferred(key: Key) -> bool {
    match key.class {
        DescriptorClass::FileSystem => key.id >= FIRST_DEFERRED_ID,
        DescriptorClass::Node => true,
        DescriptorClass::Device | DescriptorClass::State | DescriptorClass::Log | DescriptorClass::Guest => {
            false
        }
    }
}

fn name(key: Key, generation: u32) -> String {
    let letter = CLASSES.iter().find(|(_, class)| *class == key.class).map_or('?', |(letter, _)| *letter);
    format!("{letter}{:x}.{generation:x}", key.id)
}

fn parse(name: &str) -> Option<(Key, u32)> {
    let mut letters = name.chars();
    let letter = letters.next()?;
    let (_, class) = *CLASSES.iter().find(|(known, _)| *known == letter)?;
    let (id, generation) = letters.as_str().split_once('.')?;
    let key = Key { class, id: u64::from_str_radix(id, 16).ok()? };
    Some((key, u32::from_str_radix(generation, 16).ok()?))
}

/// The content of a store: what the last server left.
#[derive(Debug, Default)]
pub(super) struct StoreContent {
    pub(super) record: Option<OwnedFd>,
    pub(super) descriptors: StoredDescriptors,
    pub(super) generations: BTreeMap<Key, u32>,
    pub(super) names: Vec<String>,
}

impl StoreContent {
    /// Sorts the descriptors that the service manager passed, and ignores those of other names.
    pub(super) fn new(passed: Vec<(String, OwnedFd)>) -> Self {
        let mut content = Self::default();
        for (name, descriptor) in passed {
            if name == RECORD {
                content.record = Some(descriptor);
            } else if let Some((key, generation)) = parse(&name) {
                // Wrapping, although no descriptor is replaced that often.
                let newer = |known: &u32| generation.wrapping_sub(*known) < u32::MAX / 2;
                if content.generations.get(&key).is_none_or(newer) {
                    content.generations.insert(key, generation);
                    content.descriptors.insert(key, descriptor);
                }
            } else {
                continue;
            }
            content.names.push(name);
        }
        content
    }
}

#[cfg(test)]
mod tests;
