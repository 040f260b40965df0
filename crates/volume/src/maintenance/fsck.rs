//! The checker of a volume (fsck): verifies the invariants of the metadata, and that the contents exist.
//!
//! It only reads, and runs while the volume is in use: if problems are found and the volume changed meanwhile, the check is
//! repeated, up to three times. Objects are counted in parts, to limit memory use. A sealed log is compared with the tables as
//! well. The result is the input of [`repair`](super::repair()).

use std::collections::HashMap;

use crate::chunks::{Blob, ContentError};
use crate::id::ObjectId;
use crate::maintenance::fsck_report::{Checked, Problem};
use crate::maintenance::mark::{LiveChunks, mark_live};
use crate::maintenance::{MaintenanceError, PAGE_ROWS, Progress, sealed};
use crate::object::{ChunkId, Kind};
use crate::runtime::runtime;
use crate::store::admin::{Chunk, ObjectRecord};
use crate::store::validate::validate_content;
use crate::volume::Volume;

/// Maximum number of attempts, if the volume keeps changing.
const MAX_ATTEMPTS: u32 = 3;

/// The thoroughness of the check of contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Each referenced chunk has a location within a stored object.
    Locations,
    /// Each referenced chunk is read and verified.
    Contents,
}

/// Checks every invariant of the metadata, and every referenced chunk.
///
/// # Errors
/// Errors of either store; then nothing is known about the volume.
pub fn fsck(volume: &Volume, depth: Depth, progress: Progress<'_>) -> Result<Checked, MaintenanceError> {
    let mut checked = Checked::default();
    for _ in 0..MAX_ATTEMPTS {
        let before = volume.meta.head()?;
        checked = Checked::default();
        metadata(volume, &mut checked, progress)?;
        sealed::compare(volume, &mut checked, progress)?;
        if volume.meta.head()? == before {
            checked.at = Some(before);
            break;
        }
        // Problems may be due to a concurrent change.
        if checked.count == 0 {
            break;
        }
    }
    // References are counted from the stored metadata, even those that were tampered with.
    let admin = volume.admin()?;
    let mut live = mark_live(admin, admin, &volume.content, progress)?;
    for (id, error) in std::mem::take(&mut live.unread) {
        checked.report(Problem::Damaged(id, error.to_string()));
    }
    contents(volume, &live, depth, &mut checked, progress)?;
    Ok(checked)
}

/// Maximum number of objects counted at once, in a few words each: larger volumes are counted part by part.
const MAX_OBJECTS_PER_PASS: usize = if cfg!(test) { 8 } else { 2_000_000 };

/// The counts of an object: names that refer to it, and entries in it.
#[derive(Clone, Copy, Default)]
struct ObjectCounts {
    links: u32,
    names: u32,
    is_there: bool,
    is_directory: bool,
    /// Parent of its last name, as [`short`] id.
    parent: u64,
}

/// Folds a random id into 64 bits.
fn short(id: ObjectId) -> u64 {
    (id.0 ^ (id.0 >> 64)) as u64
}

/// A part of all objects: those whose short id modulo `of` is `rest`.
#[derive(Clone, Copy)]
struct Partition {
    rest: u64,
    of: u64,
}

impl Partition {
    fn has(self, id: ObjectId) -> bool {
        short(id) % self.of == self.rest
    }
}

fn metadata(volume: &Volume, checked: &mut Checked, progress: Progress<'_>) -> Result<(), MaintenanceError> {
    // Parents of directories that have a name.
    let mut above: HashMap<u64, u64> = HashMap::new();
    let mut part = Partition { rest: 0, of: 1 };
    while part.rest < part.of {
        let all = count(volume, &mut part, checked, progress)?;
        names(volume, part, &all, checked)?;
        for_each_record(volume, |record| {
            if part.has(record.stored.object.id) {
                object(record, &all, checked);
            }
        })?;
        let directories = all.iter().filter(|(_, counted)| counted.is_directory && counted.links > 0);
        above.extend(directories.map(|(id, counted)| (*id, counted.parent)));
        part.rest += 1;
    }
    let mut reached: HashMap<u64, bool> = HashMap::from([(short(ObjectId::ROOT), true)]);
    for_each_record(volume, |record| {
        let id = record.stored.object.id;
        let has_name = above.contains_key(&short(id));
        if record.stored.object.kind == Kind::Directory
            && has_name
            && !is_reached(short(id), &above, &mut reached)
        {
            checked.report(Problem::Unreached(id));
        }
    })
}

/// Counts the names and entries of the objects in a part. The first call may split the volume into more parts.
fn count(
    volume: &Volume,
    part: &mut Partition,
    checked: &mut Checked,
    progress: Progress<'_>,
) -> Result<HashMap<u64, ObjectCounts>, MaintenanceError> {
    let mut all: HashMap<u64, ObjectCounts> = HashMap::new();
    let (mut from, mut objects, mut names) = (Some(ObjectId(0)), 0, 0);
    while let Some(at) = from {
        let page = volume.meta.scan(at, PAGE_ROWS)?;
        for stored in page.objects.iter().filter(|stored| part.has(stored.object.id)) {
            let counted = all.entry(short(stored.object.id)).or_default();
            counted.is_there = true;
            counted.is_directory = stored.object.kind == Kind::Directory;
        }
        for link in &page.links {
            if part.has(link.child) {
                let child = all.entry(short(link.child)).or_default();
                child.links += 1;
                child.parent = short(link.at.parent);
            }
            if part.has(link.at.parent) {
                all.entry(short(link.at.parent)).or_default().names += 1;
            }
        }
        while part.rest == 0 && all.len() > MAX_OBJECTS_PER_PASS {
            part.of *= 2;
            all.retain(|id, _| id % part.of == 0);
        }
        objects += page.objects.len() as u64;
        names += page.links.len() as u64;
        progress("objects", objects);
        from = page.next;
    }
    (checked.objects, checked.names) = (objects, names);
    Ok(all)
}

/// Reports names without an object or a directory. Names in a parent that does not exist are in no page, but their objects lack
/// them in the counts.
fn names(
    volume: &Volume,
    part: Partition,
    all: &HashMap<u64, ObjectCounts>,
    checked: &mut Checked,
) -> Result<(), MaintenanceError> {
    let is = |id| all.get(&short(id)).copied().unwrap_or_default();
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let page = volume.meta.scan(at, PAGE_ROWS)?;
        for link in page.links {
            if part.has(link.child) && !is(link.child).is_there {
                checked.report(Problem::Dangling(link.at));
            } else if part.has(link.at.parent) && !is(link.at.parent).is_directory {
                checked.report(Problem::DanglingDentry(link.at));
            }
        }
        from = page.next;
    }
    Ok(())
}

fn for_each_record(volume: &Volume, mut each: impl FnMut(&ObjectRecord)) -> Result<(), MaintenanceError> {
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let (records, next) = volume.admin()?.scan_records(at, PAGE_ROWS)?;
        records.iter().for_each(&mut each);
        from = next;
    }
    Ok(())
}

fn object(record: &ObjectRecord, all: &HashMap<u64, ObjectCounts>, checked: &mut Checked) {
    let id = record.stored.object.id;
    let counted = all.get(&short(id)).copied().unwrap_or_default();
    if let Some(why) = validate_content(&record.stored.object.content) {
        checked.report(Problem::Content(id, why));
    }
    if record.stored.links != counted.links || record.names != u64::from(counted.names) {
        checked.report(Problem::Count(id, counted.links, u64::from(counted.names)));
    }
    if id == ObjectId::ROOT {
        return;
    }
    if counted.links == 0 {
        return checked.report(Problem::Orphan(id));
    }
    if counted.is_directory && (record.parent.map(short) != Some(counted.parent) || counted.links > 1) {
        checked.report(Problem::Parent(id));
    }
}

/// Reports whether a directory is below the root; caches the answer for all directories on the way.
fn is_reached(id: u64, above: &HashMap<u64, u64>, known: &mut HashMap<u64, bool>) -> bool {
    let (mut at, mut way) = (id, Vec::new());
    let answer = loop {
        if let Some(answer) = known.get(&at) {
            break *answer;
        }
        // Met again before the answer is known: a cycle.
        known.insert(at, false);
        way.push(at);
        match above.get(&at) {
            Some(parent) => at = *parent,
            None => break false,
        }
    };
    known.extend(way.into_iter().map(|met| (met, answer)));
    answer
}

fn contents(
    volume: &Volume,
    live: &LiveChunks,
    depth: Depth,
    checked: &mut Checked,
    progress: Progress<'_>,
) -> Result<(), MaintenanceError> {
    let mut sizes = HashMap::new();
    let each = |blob: Blob| sizes.extend([(blob.key, Some(blob.size))]);
    runtime().block_on(volume.content.blobs().list("packs", each))?;
    let mut found = 0;
    let mut after = ChunkId([0; 32]);
    loop {
        let chunks = volume.admin()?.scan_chunks(after, PAGE_ROWS)?;
        let Some((last, _)) = chunks.last() else { break };
        after = *last;
        let mut read: Vec<(ChunkId, Chunk)> = Vec::new();
        for (id, chunk) in chunks.into_iter().filter(|(id, _)| live.contains(id)) {
            found += 1;
            checked.bytes += u64::from(chunk.location.stored);
            let end = chunk.location.offset.checked_add(u64::from(chunk.location.stored));
            match (size_of(volume, &mut sizes, &chunk.location.key)?, end) {
                (None, _) => {
                    checked.report(Problem::Missing(id, format!("{} does not exist", chunk.location.key)))
                }
                (Some(size), Some(end)) if end <= size => read.push((id, chunk)),
                _ => checked.report(Problem::Missing(id, format!("{} is truncated", chunk.location.key))),
            }
        }
        if depth == Depth::Contents {
            // In order of location: packs are read sequentially.
            read.sort_by(|a, b| {
                (&a.1.location.key, a.1.location.offset).cmp(&(&b.1.location.key, b.1.location.offset))
            });
            volume.content.verify(
                read.into_iter().map(|(id, chunk)| (id, chunk.location)).collect(),
                |id, why| {
                    checked.report(Problem::Damaged(id, why));
                },
            )?;
        }
        checked.chunks = found;
        progress("chunks", found);
    }
    check_chunk_locations(volume, checked, progress)
}

/// Returns the size of a pack. An unlisted one may have been stored since, by compaction.
fn size_of(
    volume: &Volume,
    sizes: &mut HashMap<String, Option<u64>>,
    key: &str,
) -> Result<Option<u64>, ContentError> {
    if let Some(size) = sizes.get(key) {
        return Ok(*size);
    }
    let size = match runtime().block_on(volume.content.blobs().stat(key)) {
        Ok(found) if key.starts_with("packs/") => Some(found.size),
        Ok(_) | Err(ContentError::Missing(_)) => None,
        Err(error) => return Err(error),
    };
    sizes.insert(key.to_owned(), size);
    Ok(size)
}

/// Reports chunks that files reference and the store cannot locate.
fn check_chunk_locations(
    volume: &Volume,
    checked: &mut Checked,
    progress: Progress<'_>,
) -> Result<(), MaintenanceError> {
    let (mut from, mut count) = (Some(ObjectId(0)), 0);
    while let Some(at) = from {
        let (objects, next) = volume.admin()?.scan_records(at, PAGE_ROWS)?;
        let mut ids = Vec::new();
        for record in &objects {
            // An unreadable list has been reported already.
            ids.extend(volume.content.chunks_of(&*volume.meta, &record.stored.object.content));
        }
        for page in ids.chunks(PAGE_ROWS) {
            for (id, location) in page.iter().zip(volume.meta.locate_chunks(page)?) {
                if location.is_none() {
                    checked.report(Problem::Missing(*id, "no location in the metadata".into()));
                }
            }
        }
        count += objects.len() as u64;
        progress("contents", count);
        from = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::MetaAddress;
    use crate::id::OwnerId;
    use crate::object::LinkName;
    use crate::object::{Content, Object, Time};
    use crate::open::{Options, create};
    use crate::store::{Mutation, Transaction};

    fn make(volume: &Volume, id: u128, kind: Kind, parent: ObjectId) {
        let object = Object {
            id: ObjectId(id),
            kind,
            mode: 0o755,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: Time(0),
            target: Vec::new(),
            content: Content::empty(),
            xattrs: Default::default(),
        };
        let at = LinkName { parent, name: id.to_string().into_bytes() };
        let change = vec![Mutation::Make(object), Mutation::Link(at, ObjectId(id))];
        let item = Transaction { mutations: change, ..Transaction::default() };
        volume.meta.commit(&"n".parse().unwrap(), rand::random(), &[item]).unwrap().remove(0).unwrap();
    }

    #[test]
    fn a_volume_that_is_looked_at_in_parts_is_looked_at_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let at = MetaAddress::Sqlite(dir.path().to_owned());
        let volume = create(&at, &"v".parse().unwrap(), &Options::default()).unwrap();
        for n in 0..60 {
            match n % 10 {
                // Each directory is in the one before, so that paths go through all parts.
                0 => make(&volume, 100 + n, Kind::Directory, ObjectId(if n == 0 { 1 } else { 90 + n })),
                _ => make(&volume, 100 + n, Kind::Regular, ObjectId(100 + n / 10 * 10)),
            }
        }
        let look = || fsck(&volume, Depth::Locations, &|_, _| ()).unwrap();
        let checked = look();
        assert_eq!((checked.problems, checked.objects, checked.names), (vec![], 61, 60));

        let db = rusqlite::Connection::open(dir.path().join("meta.db")).unwrap();
        let id = |n: u128| ObjectId(n).to_bytes().to_vec();
        assert_eq!(db.execute("DELETE FROM link WHERE child = ?1", [id(113)]).unwrap(), 1);
        assert_eq!(db.execute("DELETE FROM object WHERE id = ?1", [id(127)]).unwrap(), 1);
        assert_eq!(db.execute("DELETE FROM link WHERE child = ?1", [id(140)]).unwrap(), 1);
        let problems = look().problems;
        let dangling = LinkName { parent: ObjectId(120), name: b"127".to_vec() };
        for problem in [
            Problem::Orphan(ObjectId(113)),
            Problem::Count(ObjectId(110), 1, 8 + 1),
            Problem::Dangling(dangling),
            Problem::Orphan(ObjectId(140)),
            Problem::Unreached(ObjectId(150)),
        ] {
            assert_eq!(problems.iter().filter(|one| **one == problem).count(), 1, "{problem}: {problems:?}");
        }
    }
}
