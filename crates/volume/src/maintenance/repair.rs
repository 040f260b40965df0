//! Repair of a volume from intact data: corrects counts, finds lost chunks in other packs, and links objects without a name into
//! `lost+found`. Its input are the problems that fsck reported; problems without intact data are counted and left.

use std::collections::{HashMap, HashSet};

use crate::id::{NodeName, ObjectId, OwnerId};
use crate::maintenance::fsck_report::{Checked, Problem};
use crate::maintenance::{MaintenanceError, Progress};
use crate::object::{ChunkId, Content, Kind, LinkName, Object};
use crate::store::{ChunkLocation, Mutation, Transaction, system_clock};
use crate::volume::Volume;

/// The result of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Repaired {
    /// Number of objects whose counts of names and entries were corrected.
    pub counts: u64,
    /// Number of chunks found in another pack, or in an unknown one.
    pub chunks: u64,
    /// Number of objects without a name that were linked into `lost+found`.
    pub relinked: u64,
    /// Number of problems that remain, for lack of intact data.
    pub unrepaired: u64,
}

/// Repairs the problems that [`fsck`](super::fsck()) reported; check again afterwards.
///
/// Lost chunks are searched for in all packs, by their indexes. A chunk that is nowhere intact is removed from the metadata: if
/// a node uploads the same bytes again, as part of any file, it is restored for all. Objects without a name get one in
/// `lost+found`.
///
/// # Errors
/// Errors of either store.
pub fn repair(
    volume: &Volume,
    node: &NodeName,
    checked: &Checked,
    progress: Progress<'_>,
) -> Result<Repaired, MaintenanceError> {
    let mut done = Repaired::default();
    let mut lost_chunks = HashSet::new();
    let mut lost = Vec::new();
    let mut count = HashMap::new();
    for problem in &checked.problems {
        match problem {
            Problem::Count(id, links, names) => drop(count.insert(*id, (*links, *names))),
            Problem::Missing(id, _) | Problem::Damaged(id, _) => drop(lost_chunks.insert(*id)),
            Problem::Orphan(id) => lost.push(*id),
            _ => done.unrepaired += 1,
        }
    }
    let wrong = count.len() as u64;
    match checked.at {
        Some(at) if wrong > 0 && volume.admin()?.repair_counts(at, &count)? => done.counts = wrong,
        _ => done.unrepaired += wrong,
    }
    let locations = find(volume, &lost_chunks, progress)?;
    done.chunks = locations.len() as u64;
    let (admin, now) = (volume.admin()?, system_clock()());
    if !locations.is_empty() {
        // Marked first: the location of a chunk is replaced only if it is marked.
        let ids: Vec<ChunkId> = locations.iter().map(|(id, _)| *id).collect();
        admin.mark_for_deletion(&ids, now)?;
        let item = Transaction { chunks: locations, ..Transaction::default() };
        volume.meta.commit(node, rand::random(), &[item])?;
        for id in &ids {
            lost_chunks.remove(id);
        }
    }
    done.unrepaired += lost_chunks.len() as u64;
    let nowhere: Vec<ChunkId> = lost_chunks.into_iter().collect();
    admin.mark_for_deletion(&nowhere, now)?;
    admin.drop_chunks(&nowhere, now)?;
    if !lost.is_empty() {
        done.relinked = restore_names(volume, node, &lost)?;
        done.unrepaired += lost.len() as u64 - done.relinked;
    }
    Ok(done)
}

/// Searches all packs for intact copies of chunks.
fn find(
    volume: &Volume,
    lost_chunks: &HashSet<ChunkId>,
    progress: Progress<'_>,
) -> Result<Vec<(ChunkId, ChunkLocation)>, MaintenanceError> {
    let mut locations = HashMap::new();
    if !lost_chunks.is_empty() {
        let mut packs = 0;
        for key in volume.content.packs()? {
            for (id, location) in volume.content.index(&key)? {
                if lost_chunks.contains(&id) && !locations.contains_key(&id) {
                    let mut intact = true;
                    volume.content.verify(vec![(id, location.clone())], |_, _| intact = false)?;
                    if intact {
                        locations.insert(id, location);
                    }
                }
            }
            packs += 1;
            progress("packs", packs);
        }
    }
    Ok(locations.into_iter().collect())
}

fn restore_names(volume: &Volume, node: &NodeName, lost: &[ObjectId]) -> Result<u64, MaintenanceError> {
    let now = system_clock()();
    let directory = ObjectId(rand::random());
    // A new directory for each repair: its name does not collide with an existing one.
    let at =
        LinkName { parent: ObjectId::ROOT, name: format!("lost+found.{}", now.0 / 1_000_000_000).into() };
    let made = Object {
        id: directory,
        kind: Kind::Directory,
        mode: 0o700,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: now,
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    };
    let mut items = vec![Transaction {
        mutations: vec![Mutation::Make(made), Mutation::Link(at, directory)],
        ..Transaction::default()
    }];
    items.extend(lost.iter().map(|id| {
        let at = LinkName { parent: directory, name: id.to_string().into_bytes() };
        Transaction { mutations: vec![Mutation::Link(at, *id)], ..Transaction::default() }
    }));
    let answers = volume.meta.commit(node, rand::random(), &items)?;
    Ok(answers.iter().skip(1).filter(|answer| answer.is_ok()).count() as u64)
}
