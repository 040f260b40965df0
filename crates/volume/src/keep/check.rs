//! Whether a volume is what it says.

use std::collections::HashMap;
use std::fmt;

use crate::content::runtime;
use crate::id::{ObjectId, Seq};
use crate::keep::refs::{Spoken, spoken};
use crate::keep::{KeepError, PAGE, Progress};
use crate::object::{ChunkId, Kind, LinkName};
use crate::store::address::Volume;
use crate::store::keep::{Chunk, Kept};
use crate::store::values::wrong_content;

/// Problems that are told; more are counted.
const TOLD: usize = 1000;
/// A volume that changes all the time is looked at so often.
const TIMES: u32 = 3;

/// How much of the contents is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Whether each piece has a place in a stored object that is long enough.
    Places,
    /// Whether each piece is there, byte by byte: all of the contents is read.
    Bytes,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A name leads to nothing.
    Dangling(LinkName),
    /// A name in what is no directory, or is not there.
    Astray(LinkName),
    /// An object that no name leads to.
    Lost(ObjectId),
    /// Another count of names is written down than there are: so many are.
    Count(ObjectId, u32, u64),
    /// A directory says that it is elsewhere than its name is.
    Parent(ObjectId),
    /// A directory that is not below the top one.
    Unreached(ObjectId),
    /// A content that makes no sense.
    Content(ObjectId, &'static str),
    /// A piece without a place, or whose place is not in the store.
    Missing(ChunkId, String),
    /// A piece whose bytes are others.
    Damaged(ChunkId, String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |at: &LinkName| String::from_utf8_lossy(&at.name).into_owned();
        match self {
            Self::Dangling(at) => write!(f, "name {:?} in {} leads to nothing", name(at), at.parent),
            Self::Astray(at) => write!(f, "name {:?} is in {}, which is no directory", name(at), at.parent),
            Self::Lost(id) => write!(f, "no name leads to {id}"),
            Self::Count(id, links, names) => {
                write!(f, "{id} has {links} names and holds {names}, and says something else")
            }
            Self::Parent(id) => write!(f, "directory {id} says that it is elsewhere"),
            Self::Unreached(id) => write!(f, "directory {id} is not below the top"),
            Self::Content(id, why) => write!(f, "file {id} has {why}"),
            Self::Missing(id, why) => write!(f, "piece {id:?} is missing: {why}"),
            Self::Damaged(id, why) => write!(f, "piece {id:?} is damaged: {why}"),
        }
    }
}

/// What was looked at, and found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Checked {
    /// Objects.
    pub objects: u64,
    /// Names.
    pub names: u64,
    /// Pieces that the volume speaks of.
    pub chunks: u64,
    /// Bytes of these, as they are stored.
    pub bytes: u64,
    /// The first of what is wrong.
    pub problems: Vec<Problem>,
    /// How much is.
    pub count: u64,
    /// The last commit, of a volume that held still while its metadata were looked at.
    pub at: Option<Seq>,
}

impl Checked {
    pub(super) fn tell(&mut self, problem: Problem) {
        self.count += 1;
        if self.problems.len() < TOLD {
            self.problems.push(problem);
        }
    }
}

/// Checks every invariant of the metadata, and every piece.
///
/// # Errors
/// Those of the stores: then nothing is said about the volume.
pub fn check(volume: &Volume, depth: Depth, progress: Progress<'_>) -> Result<Checked, KeepError> {
    let mut checked = Checked::default();
    for _ in 0..TIMES {
        let before = volume.meta.head()?;
        checked = Checked::default();
        metadata(volume, &mut checked, progress)?;
        if volume.meta.head()? == before {
            checked.at = Some(before);
            break;
        }
        // What looks wrong may have changed between two looks.
        if checked.count == 0 {
            break;
        }
    }
    let mut known = spoken(volume.keeper()?, &*volume.meta, &volume.content, progress)?;
    for (id, error) in std::mem::take(&mut known.unread) {
        checked.tell(Problem::Damaged(id, error.to_string()));
    }
    contents(volume, &known, depth, &mut checked, progress)?;
    Ok(checked)
}

/// What was counted of an object: how often a name leads to it, and how many names it holds.
#[derive(Clone, Copy, Default)]
struct Counted {
    links: u32,
    names: u32,
    is_there: bool,
    is_directory: bool,
    /// The directory of its last name, by [`short`].
    parent: u64,
}

/// Objects by half of their ids, which are random.
fn short(id: ObjectId) -> u64 {
    (id.0 ^ (id.0 >> 64)) as u64
}

fn metadata(volume: &Volume, checked: &mut Checked, progress: Progress<'_>) -> Result<(), KeepError> {
    let mut all: HashMap<u64, Counted> = HashMap::new();
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let page = volume.meta.scan(at, PAGE)?;
        for stored in &page.objects {
            let counted = all.entry(short(stored.object.id)).or_default();
            counted.is_there = true;
            counted.is_directory = stored.object.kind == Kind::Directory;
        }
        for link in &page.links {
            let child = all.entry(short(link.child)).or_default();
            child.links += 1;
            child.parent = short(link.at.parent);
            all.entry(short(link.at.parent)).or_default().names += 1;
        }
        checked.objects += page.objects.len() as u64;
        checked.names += page.links.len() as u64;
        progress("objects", checked.objects);
        from = page.next;
    }
    // Names whose directory is no object are in no page, but count for nobody; all others are looked at now.
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let page = volume.meta.scan(at, PAGE)?;
        for link in page.links {
            let is = |id| all.get(&short(id)).copied().unwrap_or_default();
            if !is(link.child).is_there {
                checked.tell(Problem::Dangling(link.at));
            } else if !is(link.at.parent).is_directory {
                checked.tell(Problem::Astray(link.at));
            }
        }
        from = page.next;
    }
    let mut reached: HashMap<u64, bool> = HashMap::from([(short(ObjectId::ROOT), true)]);
    let mut from = Some(ObjectId(0));
    while let Some(at) = from {
        let (kept, next) = volume.keeper()?.scan_kept(at, PAGE)?;
        for kept in kept {
            object(&kept, &all, &mut reached, checked);
        }
        from = next;
    }
    Ok(())
}

fn object(kept: &Kept, all: &HashMap<u64, Counted>, reached: &mut HashMap<u64, bool>, checked: &mut Checked) {
    let id = kept.stored.object.id;
    let counted = all.get(&short(id)).copied().unwrap_or_default();
    if let Some(why) = wrong_content(&kept.stored.object.content) {
        checked.tell(Problem::Content(id, why));
    }
    if kept.stored.links != counted.links || kept.names != u64::from(counted.names) {
        checked.tell(Problem::Count(id, counted.links, u64::from(counted.names)));
    }
    if id == ObjectId::ROOT {
        return;
    }
    if counted.links == 0 {
        return checked.tell(Problem::Lost(id));
    }
    if counted.is_directory {
        if kept.parent.map(short) != Some(counted.parent) || counted.links > 1 {
            checked.tell(Problem::Parent(id));
        }
        if !is_reached(short(id), all, reached) {
            checked.tell(Problem::Unreached(id));
        }
    }
}

/// Walks up; all that was met on the way is then known.
fn is_reached(id: u64, all: &HashMap<u64, Counted>, known: &mut HashMap<u64, bool>) -> bool {
    let (mut at, mut way) = (id, Vec::new());
    let answer = loop {
        if let Some(answer) = known.get(&at) {
            break *answer;
        }
        // Met again before it is known: a cycle.
        known.insert(at, false);
        way.push(at);
        match all.get(&at) {
            Some(counted) if counted.links > 0 => at = counted.parent,
            _ => break false,
        }
    };
    known.extend(way.into_iter().map(|met| (met, answer)));
    answer
}

fn contents(
    volume: &Volume,
    spoken: &Spoken,
    depth: Depth,
    checked: &mut Checked,
    progress: Progress<'_>,
) -> Result<(), KeepError> {
    let mut sizes = HashMap::new();
    runtime().block_on(volume.content.blobs().list("packs", |blob| sizes.extend([(blob.key, blob.size)])))?;
    let mut found = 0;
    let mut after = ChunkId([0; 32]);
    loop {
        let chunks = volume.keeper()?.scan_chunks(after, PAGE)?;
        let Some((last, _)) = chunks.last() else { break };
        after = *last;
        let mut read: Vec<(ChunkId, Chunk)> = Vec::new();
        for (id, chunk) in chunks.into_iter().filter(|(id, _)| spoken.contains(id)) {
            found += 1;
            checked.bytes += u64::from(chunk.place.stored);
            let end = chunk.place.offset.checked_add(u64::from(chunk.place.stored));
            match (sizes.get(&chunk.place.key), end) {
                (None, _) => checked.tell(Problem::Missing(id, format!("{} is not there", chunk.place.key))),
                (Some(size), Some(end)) if end <= *size => read.push((id, chunk)),
                _ => checked.tell(Problem::Missing(id, format!("{} is too short", chunk.place.key))),
            }
        }
        if depth == Depth::Bytes {
            // In the order in which they lie: packs are read from one end to the other.
            read.sort_by(|a, b| (&a.1.place.key, a.1.place.offset).cmp(&(&b.1.place.key, b.1.place.offset)));
            volume.content.verify(
                read.into_iter().map(|(id, chunk)| (id, chunk.place)).collect(),
                |id, why| {
                    checked.tell(Problem::Damaged(id, why));
                },
            )?;
        }
        checked.chunks = found;
        progress("chunks", found);
    }
    without_place(volume, checked, progress)
}

/// Pieces that files speak of, and that no row knows.
fn without_place(volume: &Volume, checked: &mut Checked, progress: Progress<'_>) -> Result<(), KeepError> {
    let (mut from, mut count) = (Some(ObjectId(0)), 0);
    while let Some(at) = from {
        let (objects, next) = volume.keeper()?.scan_kept(at, PAGE)?;
        let mut wanted = Vec::new();
        for kept in &objects {
            // A list that cannot be read was told.
            wanted.extend(volume.content.chunks_of(&*volume.meta, &kept.stored.object.content));
        }
        for wanted in wanted.chunks(PAGE) {
            for (id, place) in wanted.iter().zip(volume.meta.places(wanted)?) {
                if place.is_none() {
                    checked.tell(Problem::Missing(*id, "it has no place".into()));
                }
            }
        }
        count += objects.len() as u64;
        progress("contents", count);
        from = next;
    }
    Ok(())
}
