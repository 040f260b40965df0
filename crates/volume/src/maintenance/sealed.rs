//! Checks that the tables of a store agree with its sealed log.
//!
//! The log is verified from its beginning and replayed. The commit numbers of each object and each name are then compared with
//! the tables, and the values in the tables with the commits.

use std::collections::{BTreeMap, HashMap};

use crate::id::{ObjectId, Seq};
use crate::maintenance::fsck_report::{Checked, Problem};
use crate::maintenance::{MaintenanceError, PAGE_ROWS, Progress};
use crate::object::{Field, LinkName, StoredLink, VersionedObject};
use crate::store::log_verifier::LogVerifier;
use crate::store::proof::Proofs;
use crate::store::{LogEntry, Mutation, SealedLog, StoreError};
use crate::volume::Volume;

/// The final state after the log: the commit that set each field and name.
#[derive(Default)]
struct FinalState {
    objects: HashMap<ObjectId, ObjectVersions>,
    /// Names by a hash of directory and name.
    links: HashMap<[u8; 16], Seq>,
}

#[derive(Default)]
struct ObjectVersions {
    made: Seq,
    set: BTreeMap<Field, Seq>,
}

fn short(at: &LinkName) -> [u8; 16] {
    let mut short = [0; 16];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&at.parent.to_bytes()).update(&at.name).finalize_xof().fill(&mut short);
    short
}

impl FinalState {
    fn add(&mut self, entry: &LogEntry) {
        let seq = entry.seq;
        for change in &entry.change {
            let fields: &[Field] = match change {
                Mutation::Make(object) => {
                    self.objects.insert(object.id, ObjectVersions { made: seq, set: BTreeMap::new() });
                    continue;
                }
                Mutation::Link(at, _) => {
                    self.links.insert(short(at), seq);
                    continue;
                }
                Mutation::Unlink(at) => {
                    self.links.remove(&short(at));
                    continue;
                }
                Mutation::Seal(_) => continue,
                Mutation::SetContent(..) => &[Field::Content, Field::Modified],
                Mutation::SetMode(..) => &[Field::Mode],
                Mutation::SetOwner(..) => &[Field::Owner],
                Mutation::SetGroup(..) => &[Field::Group],
                Mutation::SetModified(..) => &[Field::Modified],
                Mutation::SetXattr(_, name, _) => &[Field::Xattr(name.clone())],
            };
            let parts = change.sets().map(|id| self.objects.entry(id).or_default());
            if let Some(parts) = parts.filter(|parts| parts.made != seq) {
                parts.set.extend(fields.iter().map(|field| (field.clone(), seq)));
            }
        }
    }

    fn has(&self, stored: &VersionedObject) -> bool {
        let parts = self.objects.get(&stored.object.id);
        match parts {
            Some(parts) => parts.made == stored.created && parts.set == stored.field_versions,
            None => {
                stored.object.id == ObjectId::ROOT
                    && stored.created == Seq(0)
                    && stored.field_versions.is_empty()
            }
        }
    }
}

/// Reports differences between the tables and the log. Does nothing if the log is not sealed.
///
/// # Errors
/// Any [`StoreError`] of the engine, such as [`StoreError::Unreachable`].
pub(super) fn compare(
    volume: &Volume,
    checked: &mut Checked,
    progress: Progress<'_>,
) -> Result<(), MaintenanceError> {
    let Some(log) = volume.meta.sealed_log() else { return Ok(()) };
    let mut left = match read(log, progress) {
        Err(StoreError::Tampered(what)) => {
            checked.report(Problem::Tampered(what));
            return Ok(());
        }
        left => left?,
    };
    let (admin, proofs, mut from) = (volume.admin()?, Proofs::default(), Some(ObjectId(0)));
    while let Some(at) = from {
        let page = admin.scan(at, PAGE_ROWS)?;
        from = page.next;
        for stored in page.objects.iter().filter(|stored| !left.has(stored)) {
            let what = format!("object {} is not in the state that the log records", stored.object.id);
            checked.report(Problem::Tampered(what));
        }
        for link in &page.links {
            if left.links.remove(&short(&link.at)) != Some(link.set) {
                let what = format!(
                    "a name in directory {} is not in the state that the log records",
                    link.at.parent
                );
                checked.report(Problem::Tampered(what));
            }
        }
        let prove = |objects: &[VersionedObject], links: &[StoredLink]| {
            proofs.prove(admin, log.sealer(), objects.iter(), links.iter())
        };
        match prove(&page.objects, &page.links) {
            // One by one, to report each.
            Err(StoreError::Tampered(_)) => {
                let objects = page.objects.chunks(1).map(|one| prove(one, &[]));
                let links = page.links.chunks(1).map(|one| prove(&[], one));
                for outcome in objects.chain(links) {
                    match outcome {
                        Err(StoreError::Tampered(what)) => checked.report(Problem::Tampered(what)),
                        outcome => outcome?,
                    }
                }
            }
            outcome => outcome?,
        }
    }
    if !left.links.is_empty() {
        let what = format!("{} names that the log records are missing", left.links.len());
        checked.report(Problem::Tampered(what));
    }
    Ok(())
}

fn read(log: &dyn SealedLog, progress: Progress<'_>) -> Result<FinalState, StoreError> {
    let mut verifier = LogVerifier::new(log.sealer());
    let mut left = FinalState::default();
    loop {
        let entries = log.stored_since(verifier.at(), PAGE_ROWS)?;
        if entries.is_empty() {
            break;
        }
        for entry in &entries {
            verifier.take(log.sealer(), entry)?;
            left.add(entry);
        }
        verifier.drop_before(verifier.at());
        progress("commits", verifier.at().0);
    }
    match log.sealer().sealed().from {
        from if verifier.at() < from => Err(StoreError::Tampered(format!(
            "the log ends at commit {}, but had {from} commits when the volume was upgraded",
            verifier.at()
        ))),
        _ => Ok(left),
    }
}
