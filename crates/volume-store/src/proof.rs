//! Verifies the objects and names in the tables of a store against the entries of its sealed log that set them.
//!
//! Each field of an object, and each name, has the number of the commit that set it. So data that is read is authentic: a holder
//! of the key wrote it, for this object or name. Only a node that follows the log knows that nothing newer replaced it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use shunt_volume_types::id::{ObjectId, Seq};
use shunt_volume_types::object::{Field, Kind, LinkName, Object, StoredLink, VersionedObject};

use super::log_verifier::LogVerifier;
use super::seal::{RootAttributes, Sealer, tampered};
use super::{LogEntry, MetaStore, Mutation, StoreError, codec};

/// Number of verified entries that are cached.
const MAX_CACHED_ENTRIES: usize = 4096;
/// Entries are read together if the range has at most `MAX_RANGE_ENTRIES` of them and no gap between needed ones exceeds `MAX_GAP_ENTRIES`.
const MAX_RANGE_ENTRIES: u64 = 256;
const MAX_GAP_ENTRIES: u64 = 16;
/// Page size for reading the unsealed part of a log.
const PAGE_ENTRIES: u64 = 1024;

/// Verifies data that are read from a store out of order.
#[derive(Default)]
pub struct Proofs {
    /// Cache of verified entries, by number.
    verified: Mutex<BTreeMap<Seq, LogEntry>>,
    /// Hashes of the entries without seals, once all of them were verified together.
    unsealed: Mutex<Option<Arc<[EntryHash]>>>,
}

/// A truncated hash of an entry.
type EntryHash = [u8; 16];

fn entry_hash(entry: &LogEntry) -> EntryHash {
    let mut entry_hash = EntryHash::default();
    blake3::Hasher::new().update(&codec::encode(entry)).finalize_xof().fill(&mut entry_hash);
    entry_hash
}

/// The mutation of an entry that set a field of an object.
enum FieldSource<'a> {
    Made(&'a Object),
    Set(&'a Mutation),
}

impl Proofs {
    /// Verifies objects and names in their stored form.
    ///
    /// # Errors
    /// [`StoreError::Tampered`]; any other [`StoreError`] of the engine.
    pub fn prove<'a>(
        &self,
        store: &dyn MetaStore,
        sealer: &Sealer,
        objects: impl Iterator<Item = &'a VersionedObject> + Clone,
        links: impl Iterator<Item = &'a StoredLink> + Clone,
    ) -> Result<(), StoreError> {
        let mut needed: BTreeSet<Seq> = links.clone().map(|link| link.set).collect();
        for stored in objects.clone() {
            needed.extend(stored.field_versions.values());
            needed.insert(stored.created);
        }
        // The root directory was created before the log began.
        needed.remove(&Seq(0));
        let mut cache = self.verified.lock();
        if cache.len() > MAX_CACHED_ENTRIES {
            cache.clear();
        }
        self.read(store, sealer, needed, &mut cache)?;
        objects.into_iter().try_for_each(|stored| object(sealer, &cache, stored))?;
        links.into_iter().try_for_each(|link| name(&cache, link))
    }

    /// Verifies entries from anywhere in a log.
    ///
    /// # Errors
    /// As for [`prove`](Self::prove).
    pub fn verify(
        &self,
        store: &dyn MetaStore,
        sealer: &Sealer,
        entries: &[LogEntry],
    ) -> Result<(), StoreError> {
        let from = sealer.sealed().from;
        for entry in entries {
            sealer.verify(entry)?;
            if entry.seq <= from {
                let unsealed = self.unsealed(store, sealer)?;
                if unsealed.get(entry.seq.0.wrapping_sub(1) as usize) != Some(&entry_hash(entry)) {
                    return Err(tampered(format_args!(
                        "commit {} differs from the one that was read before",
                        entry.seq
                    )));
                }
            }
        }
        Ok(())
    }

    /// Reads and verifies all entries without seals: the key holder vouched for them only as a whole.
    fn unsealed(&self, store: &dyn MetaStore, sealer: &Sealer) -> Result<Arc<[EntryHash]>, StoreError> {
        let mut unsealed = self.unsealed.lock();
        if let Some(unsealed) = &*unsealed {
            return Ok(unsealed.clone());
        }
        let (mut verifier, mut all) = (LogVerifier::new(sealer), Vec::new());
        let from = sealer.sealed().from;
        while verifier.at() < from {
            let limit = (from.0 - verifier.at().0).min(PAGE_ENTRIES) as usize;
            let entries = log_since(store, verifier.at(), limit)?;
            if entries.is_empty() {
                return Err(tampered(format_args!("the log ends at commit {}", verifier.at())));
            }
            for entry in &entries {
                verifier.take(sealer, entry)?;
                all.push(entry_hash(entry));
            }
            verifier.drop_before(verifier.at());
        }
        Ok(unsealed.insert(all.into()).clone())
    }

    fn read(
        &self,
        store: &dyn MetaStore,
        sealer: &Sealer,
        mut missing: BTreeSet<Seq>,
        cache: &mut BTreeMap<Seq, LogEntry>,
    ) -> Result<(), StoreError> {
        missing.retain(|seq| !cache.contains_key(seq));
        while let Some(first) = missing.first().copied() {
            let mut last = first;
            for seq in missing.iter().copied() {
                if seq.0 - last.0 > MAX_GAP_ENTRIES || seq.0 - first.0 >= MAX_RANGE_ENTRIES {
                    break;
                }
                last = seq;
            }
            let mut entries = log_since(store, Seq(first.0 - 1), (last.0 - first.0) as usize + 1)?;
            entries.retain(|entry| missing.remove(&entry.seq));
            self.verify(store, sealer, &entries)?;
            cache.extend(entries.into_iter().map(|entry| (entry.seq, entry)));
            if missing.first() == Some(&first) {
                return Err(tampered(format_args!(
                    "the tables refer to commit {first}, which is not in the log"
                )));
            }
        }
        Ok(())
    }
}

/// Reads the log; a truncated one is an error, since a sealed log is never truncated.
pub(super) fn log_since(
    store: &dyn MetaStore,
    after: Seq,
    limit: usize,
) -> Result<Vec<LogEntry>, StoreError> {
    match store.log_since(after, limit) {
        Err(StoreError::Forgotten(_)) => Err(tampered("the log does not go back to the beginning")),
        entries => entries,
    }
}

fn object(
    sealer: &Sealer,
    entries: &BTreeMap<Seq, LogEntry>,
    stored: &VersionedObject,
) -> Result<(), StoreError> {
    let object = &stored.object;
    let wrong = |what: &str| {
        Err(tampered(format_args!("{what} of object {} differs from what the log records", object.id)))
    };
    let made = entries.get(&stored.created).and_then(|entry| made(entry, object.id));
    let is_top = object.id == ObjectId::ROOT && stored.created == Seq(0) && object.kind == Kind::Directory;
    match made {
        Some(made) if made.kind == object.kind && made.target == object.target => {}
        None if is_top && object.target.is_empty() => {}
        _ => return wrong("the kind"),
    }
    let mut fields = vec![Field::Content, Field::Mode, Field::Owner, Field::Group, Field::Modified];
    let names = object.xattrs.keys().chain(made.into_iter().flat_map(|made| made.xattrs.keys()));
    fields.extend(names.cloned().map(Field::Xattr));
    fields.extend(stored.field_versions.keys().cloned());
    for field in fields {
        let seq = stored.seq_of(&field);
        let is_genuine = match entries.get(&seq).and_then(|entry| last_setting(entry, object.id, &field)) {
            Some(FieldSource::Made(made)) => is_same(&field, object, made),
            Some(FieldSource::Set(change)) => sets_current_value(change, &field, object),
            None if seq == Seq(0) && is_top => is_initial_root_value(&field, object, sealer.sealed().top),
            None => false,
        };
        if !is_genuine {
            return wrong(match field {
                Field::Content => "the content",
                Field::Mode => "the mode",
                Field::Owner => "the owner",
                Field::Group => "the group",
                Field::Modified => "the time",
                Field::Xattr(_) => "an extended attribute",
            });
        }
    }
    Ok(())
}

fn made(entry: &LogEntry, id: ObjectId) -> Option<&Object> {
    entry.change.iter().find_map(|change| match change {
        Mutation::Make(object) if object.id == id => Some(object),
        _ => None,
    })
}

/// Returns the last mutation in an entry that set a field of an object.
fn last_setting<'a>(entry: &'a LogEntry, id: ObjectId, field: &Field) -> Option<FieldSource<'a>> {
    entry.change.iter().rev().find_map(|change| match change {
        Mutation::Make(object) if object.id == id => Some(FieldSource::Made(object)),
        change if change.sets() == Some(id) && is_about(change, field) => Some(FieldSource::Set(change)),
        _ => None,
    })
}

fn is_about(change: &Mutation, field: &Field) -> bool {
    match change {
        Mutation::SetContent(..) => matches!(field, Field::Content | Field::Modified),
        Mutation::SetMode(..) => *field == Field::Mode,
        Mutation::SetOwner(..) => *field == Field::Owner,
        Mutation::SetGroup(..) => *field == Field::Group,
        Mutation::SetModified(..) => *field == Field::Modified,
        Mutation::SetXattr(_, name, _) => matches!(field, Field::Xattr(of) if of == name),
        Mutation::Make(_) | Mutation::Link(..) | Mutation::Unlink(_) | Mutation::Seal(_) => false,
    }
}

/// Reports whether a mutation set a field of an object to its current value.
fn sets_current_value(change: &Mutation, field: &Field, object: &Object) -> bool {
    match change {
        Mutation::SetContent(_, _, modified) if *field == Field::Modified => *modified == object.modified,
        Mutation::SetContent(_, content, _) => *content == object.content,
        Mutation::SetMode(_, mode) => *mode == object.mode,
        Mutation::SetOwner(_, owner) => *owner == object.owner,
        Mutation::SetGroup(_, group) => *group == object.group,
        Mutation::SetModified(_, modified) => *modified == object.modified,
        Mutation::SetXattr(_, name, value) => object.xattrs.get(name) == value.as_ref(),
        Mutation::Make(_) | Mutation::Link(..) | Mutation::Unlink(_) | Mutation::Seal(_) => false,
    }
}

fn is_same(field: &Field, one: &Object, other: &Object) -> bool {
    match field {
        Field::Content => one.content == other.content,
        Field::Mode => one.mode == other.mode,
        Field::Owner => one.owner == other.owner,
        Field::Group => one.group == other.group,
        Field::Modified => one.modified == other.modified,
        Field::Xattr(name) => one.xattrs.get(name) == other.xattrs.get(name),
    }
}

/// Reports whether a field of the root directory still has its initial value.
fn is_initial_root_value(field: &Field, object: &Object, top: RootAttributes) -> bool {
    match field {
        Field::Content => object.content == shunt_volume_types::object::Content::empty(),
        Field::Mode => object.mode == top.mode,
        Field::Owner => object.owner == top.owner,
        Field::Group => object.group == top.group,
        Field::Modified => object.modified == top.modified,
        Field::Xattr(name) => !object.xattrs.contains_key(name),
    }
}

fn name(entries: &BTreeMap<Seq, LogEntry>, link: &StoredLink) -> Result<(), StoreError> {
    let leads = |at: &LinkName, child: Option<ObjectId>| (*at == link.at).then_some(child);
    let stated = entries.get(&link.set).and_then(|entry| {
        entry.change.iter().rev().find_map(|change| match change {
            Mutation::Link(at, child) => leads(at, Some(*child)),
            Mutation::Unlink(at) => leads(at, None),
            _ => None,
        })
    });
    match stated {
        Some(Some(child)) if child == link.child => Ok(()),
        _ => Err(tampered(format_args!(
            "a name in directory {} leads to object {}, which the log does not record",
            link.at.parent, link.child
        ))),
    }
}
