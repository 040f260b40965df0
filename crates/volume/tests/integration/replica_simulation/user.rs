//! Random operations of users, and the promises that replicas make to them.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt as _;
use rand::rngs::SmallRng;
use rustix::io::Errno;
use shunt_volume::id::OwnerId;
use shunt_volume::merge::Side;
use shunt_volume::object::{Kind, Time};
use shunt_volume::replica::{CacheState, NewObject, ROOT, Rename, SetAttr};

use crate::replica_simulation::log;
use crate::replica_simulation::node::{Handle, Node, PathEntry, held, token};

/// Contents and their promised fate.
#[derive(Default)]
pub struct Promises {
    pub next: u64,
    /// Contents that must exist somewhere: they were synced, or survived every failure.
    pub due: BTreeSet<u64>,
    /// Contents that a user who saw them has deleted or overwritten.
    pub ended: BTreeSet<u64>,
    /// Contents by digest, to identify those that a user deletes without a local copy.
    digests: BTreeMap<[u8; 32], u64>,
}

impl Promises {
    pub fn lost(&self, seen: &BTreeSet<u64>) -> Vec<u64> {
        self.due.iter().filter(|one| !self.ended.contains(one) && !seen.contains(one)).copied().collect()
    }
}

pub struct User<'a> {
    pub node: &'a mut Node,
    pub rng: &'a mut SmallRng,
    pub promises: &'a mut Promises,
}

type OpResult = Result<(), Errno>;

impl User<'_> {
    fn pick<T: Clone>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.rng.random_range(0..of.len())].clone())
    }

    fn plain(kind: Kind) -> NewObject<'static> {
        NewObject { kind, mode: 0o700, owner: OwnerId(0), group: OwnerId(0), target: b"" }
    }

    fn new_token(&mut self) -> u64 {
        self.promises.next += 1;
        let token = self.promises.next;
        let digest =
            self.node.contents().hasher().update(&crate::replica_simulation::node::bytes(token)).finalize();
        self.promises.digests.insert(*digest.as_bytes(), token);
        token
    }

    /// Returns the content of a file, whether it is cached or not.
    fn token_of(&self, num: u64) -> Result<Option<u64>, Errno> {
        let replica = self.node.replica();
        let node = replica.get(num)?;
        if !node.is_regular() {
            return Ok(None);
        }
        if node.state == CacheState::Complete {
            return Ok(token(&self.node.read(num)?));
        }
        let digest = replica.apply(|applying| {
            let Some(node) = applying.inode(num)? else { return Ok(None) };
            Ok(Some(applying.local(&node)?.object.content.digest))
        })?;
        Ok(digest.and_then(|digest| self.promises.digests.get(&digest).copied()))
    }

    fn ends(&mut self, num: u64) -> OpResult {
        let ended = self.token_of(num)?;
        self.promises.ended.extend(ended);
        Ok(())
    }

    /// Returns all visible contents.
    fn all(&self) -> Result<BTreeSet<u64>, Errno> {
        let places = self.node.places()?;
        places.iter().filter_map(|place| self.token_of(place.node.ino).transpose()).collect()
    }

    /// Executes one random operation. Impossible operations are refused.
    ///
    /// # Errors
    /// Errors that no user should see.
    pub fn act(&mut self) -> OpResult {
        match self.try_to_act() {
            Err(
                Errno::NOENT
                | Errno::EXIST
                | Errno::NOTEMPTY
                | Errno::PERM
                | Errno::BUSY
                | Errno::NETUNREACH
                | Errno::ISDIR
                | Errno::NOTDIR
                | Errno::INVAL,
            ) => Ok(()),
            done => done,
        }
    }

    fn try_to_act(&mut self) -> OpResult {
        let places = self.node.places()?;
        let of = |kind: Kind| places.iter().filter(|place| place.node.kind == kind).cloned().collect();
        let (files, directories): (Vec<PathEntry>, Vec<PathEntry>) = (of(Kind::Regular), of(Kind::Directory));
        let parent = match self.rng.random_range(0..3) {
            0 => ROOT,
            _ => self.pick(&directories).map_or(ROOT, |place| place.node.ino),
        };
        let name = vec![b'a' + self.rng.random_range(0..4u8)];
        let what = self.rng.random_range(0..100);
        log(|| format!("{} does {what}, perhaps {name:?} in {parent}", self.node.name));
        let replica = self.node.replica().clone();
        match what {
            0..20 => {
                let node = replica.make(parent, &name, Self::plain(Kind::Regular))?;
                self.write(node.ino, false)
            }
            20..28 => replica.make(parent, &name, Self::plain(Kind::Directory)).map(drop),
            28..45 => match self.pick(&files) {
                Some(place) => {
                    let truncate = self.rng.random();
                    self.write(place.node.ino, truncate)
                }
                None => Ok(()),
            },
            45..49 => {
                let Some(place) = self.pick(&files) else { return Ok(()) };
                let opened = replica.open_file(place.node.ino, true, false)?;
                let (num, session) = (place.node.ino, opened.session);
                self.node.open.push(Handle { num, session, file: opened.file });
                Ok(())
            }
            49..53 => self.close(),
            53..58 => {
                let Some(place) = self.pick(&places) else { return Ok(()) };
                let n = self.rng.random_range(0..4);
                let set = match n {
                    0 => SetAttr { modified: Some(Time(place.node.modified.0 / 2)), ..SetAttr::default() },
                    _ => SetAttr { mode: Some(0o700 | n), ..SetAttr::default() },
                };
                replica.set(place.node.ino, set).map(drop)
            }
            58..61 => {
                let Some(place) = self.pick(&files) else { return Ok(()) };
                let value = [self.rng.random_range(0..3)];
                let done =
                    replica.set_xattr(place.node.ino, b"user.x", (value[0] > 0).then_some(&value), None);
                done.or_else(|errno| if errno == Errno::NODATA { Ok(()) } else { Err(errno) })
            }
            61..75 => self.rename(&places, parent, &name),
            75..79 => {
                let Some(place) = self.pick(&files) else { return Ok(()) };
                replica.link(place.node.ino, parent, &name).map(drop)
            }
            79..88 => match self.pick(&places) {
                Some(place) => self.remove(&place),
                None => Ok(()),
            },
            88..91 => self.resolve(),
            91..94 => replica.evict(self.rng.random_range(1..1 << 20)).map(drop),
            94..96 => replica.reap(100).map(drop),
            96..98 => {
                replica.sync()?;
                self.committed();
                Ok(())
            }
            _ => match self.pick(&files) {
                Some(place) => {
                    self.node.read(place.node.ino)?;
                    self.sync_file(place.node.ino)
                }
                None => Ok(()),
            },
        }
    }

    pub fn committed(&mut self) {
        let wrote = std::mem::take(&mut self.node.wrote);
        self.promises.due.extend(&wrote);
        self.node.committed.extend(wrote);
    }

    pub fn sync_file(&mut self, num: u64) -> OpResult {
        let replica = self.node.replica().clone();
        if replica.get(num)?.state != CacheState::Complete {
            return Ok(());
        }
        let held = token(&self.node.read(num)?);
        replica.sync_file(num)?;
        self.committed();
        if let Some(token) = held {
            log(|| format!("  {token} is synced"));
            // If the name was removed, so was the promise.
            self.node.committed.remove(&token);
        }
        Ok(())
    }

    pub fn write(&mut self, num: u64, truncate: bool) -> OpResult {
        let replica = self.node.replica().clone();
        if truncate {
            self.ends(num)?;
        }
        let opened = replica.open_file(num, true, truncate)?;
        let token = self.new_token();
        log(|| format!("  {num} holds {token}"));
        let before = self.node.put(&opened.file, token);
        self.promises.ended.extend(before);
        if self.rng.random_range(0..3) > 0 {
            replica.release_open(num, true, opened.session);
            // A file without a name is freed at its last close.
            if replica.get(num).is_ok_and(|node| node.links > 0) {
                self.node.wrote.insert(token);
            }
            if self.rng.random() {
                self.sync_file(num)?;
            }
        } else {
            // With sync and close in the other order.
            self.node.wrote.insert(token);
            if self.rng.random() {
                replica.sync_file(num)?;
                self.committed();
                self.node.committed.remove(&token);
            }
            replica.release_open(num, true, opened.session);
        }
        Ok(())
    }

    /// Writes through a file that was opened earlier.
    fn close(&mut self) -> OpResult {
        if self.node.open.is_empty() {
            return Ok(());
        }
        let n = self.rng.random_range(0..self.node.open.len());
        let Handle { num, session, file } = self.node.open.swap_remove(n);
        if self.rng.random_range(0..3) > 0 {
            let token = self.new_token();
            log(|| format!("  {num} holds {token}, of session {session}"));
            debug_assert_eq!(held(&file).len(), file.metadata().unwrap().len() as usize);
            let before = self.node.put(&file, token);
            self.promises.ended.extend(before);
            // A write to a deleted file goes to that file, even if its object was restored.
            let now = self.node.replica().open_file(num, false, false);
            if let Ok(now) = &now {
                self.node.replica().release_open(num, false, now.session);
            }
            if now.is_ok_and(|now| now.session == session)
                && self.node.replica().get(num).is_ok_and(|node| node.links > 0)
            {
                self.node.wrote.insert(token);
            }
        }
        self.node.replica().release_open(num, true, session);
        Ok(())
    }

    fn rename(&mut self, places: &[PathEntry], parent: u64, name: &[u8]) -> OpResult {
        let Some(place) = self.pick(places) else { return Ok(()) };
        let how = match self.rng.random_range(0..6) {
            0 => Rename::NoReplace,
            1 => Rename::Exchange,
            _ => Rename::Replace,
        };
        let over = places.iter().find(|one| one.parent == parent && one.name == name);
        if let Some(over) = over.filter(|over| how == Rename::Replace && over.node.ino != place.node.ino) {
            self.ends(over.node.ino)?;
        }
        log(|| format!("  {} goes over {:?}: {how:?}", place.path, over.map(|over| &over.path)));
        self.node.replica().rename(place.parent, &place.name, parent, name, how).map(drop)
    }

    pub fn remove(&mut self, place: &PathEntry) -> OpResult {
        let replica = self.node.replica().clone();
        let remove = || match place.node.is_directory() {
            true => replica.rmdir(place.parent, &place.name),
            false => replica.unlink(place.parent, &place.name),
        };
        log(|| format!("  {} goes", place.path));
        if replica.shows_conflict(place.parent) {
            return self.loses(|| remove().map(drop));
        }
        self.ends(place.node.ino)?;
        remove().map(drop)
    }

    /// Runs an operation, and marks every content as ended that is not visible afterwards.
    fn loses(&mut self, work: impl FnOnce() -> OpResult) -> OpResult {
        let before = self.all()?;
        let ended: BTreeSet<u64> = before.difference(&self.promises.ended).copied().collect();
        // Also if the operation fails half way, because it may have taken effect.
        self.promises.ended.extend(&ended);
        work()?;
        let after = self.all()?;
        for token in ended.intersection(&after) {
            self.promises.ended.remove(token);
        }
        Ok(())
    }

    fn resolve(&mut self) -> OpResult {
        let replica = self.node.replica().clone();
        let conflicts = replica.conflicts()?;
        let Some((at, conflict)) = self.pick(&conflicts) else { return Ok(()) };
        log(|| format!("  resolves {at:?} {conflict:?}"));
        match self.rng.random_range(0..3) {
            0 => replica.keep_both(&at),
            1 => self.loses(|| replica.resolve(&at, Side::Local)),
            _ => self.loses(|| replica.resolve(&at, Side::Remote)),
        }
    }
}
