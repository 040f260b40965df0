//! A simulated node: a replica on its disk, with its connections to the stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rustix::io::Errno;
use shunt_volume::chunks::{Blobs, ContentStore};
use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::NodeName;
use shunt_volume::object::{Kind, Time};
use shunt_volume::replica::{
    Inode as Object, Options, ROOT, Replica, ReplicaError, StoreFetcher, SyncAdapter,
};
use shunt_volume::sync::{Step, SyncError, Synchroniser};
use shunt_volume::volume::Volume;

use crate::common::faulty_metadata_store::FaultyMetaStore;
use crate::common::faulty_object_store::{FaultyObjectStore, NetworkMode};
use crate::replica_simulation::log;
use crate::replica_simulation::power_fail_disk::{Crash, PowerFailDisk};

/// A file that is open for writing.
pub struct Handle {
    pub num: u64,
    pub session: u64,
    pub file: Arc<File>,
}

/// A dentry with its path and inode.
#[derive(Debug, Clone)]
pub struct PathEntry {
    pub parent: u64,
    pub name: Vec<u8>,
    pub path: String,
    pub node: Object,
}

struct RunningNode {
    replica: Arc<Replica>,
    sync: Synchroniser<SyncAdapter>,
}

pub struct Node {
    pub name: NodeName,
    pub disk: PowerFailDisk,
    pub net: Arc<FaultyMetaStore>,
    pub objects: Arc<FaultyObjectStore>,
    contents: ContentStore,
    clock: Arc<AtomicI64>,
    skew: i64,
    life: Option<RunningNode>,
    pub open: Vec<Handle>,
    /// Contents that a user wrote: not yet committed, and committed.
    pub wrote: BTreeSet<u64>,
    pub committed: BTreeSet<u64>,
}

impl Node {
    pub fn new(
        name: &str,
        home: &Path,
        (volume, secret): (&Volume, Option<&VolumeKey>),
        clock: &Arc<AtomicI64>,
        seed: u64,
    ) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let net = Arc::new(FaultyMetaStore::new(volume.meta.clone(), rng.random()));
        let objects = FaultyObjectStore::over(volume.content.blobs().objects());
        let objects = Arc::new(objects);
        let keys = volume.described.keys(secret).unwrap();
        Self {
            name: name.parse().unwrap(),
            disk: PowerFailDisk::new(home.join(name)),
            net,
            contents: ContentStore::new(Blobs::over(objects.clone()), keys),
            objects,
            clock: clock.clone(),
            skew: rng.random_range(-1_000_000..1_000_000),
            life: None,
            open: Vec::new(),
            wrote: BTreeSet::new(),
            committed: BTreeSet::new(),
        }
    }

    pub fn now(&self) -> Time {
        Time(self.clock.fetch_add(1000, Ordering::Relaxed) + self.skew)
    }

    pub fn contents(&self) -> &ContentStore {
        &self.contents
    }

    pub fn replica(&self) -> &Arc<Replica> {
        &self.life.as_ref().unwrap().replica
    }

    /// Starts the node, possibly after a failure.
    pub fn boot(&mut self, rng: &mut SmallRng) -> Result<(), ReplicaError> {
        let (clock, skew) = (self.clock.clone(), self.skew);
        let options = Options {
            background: false,
            ids: Some(rng.random()),
            clock: Arc::new(move || Time(clock.fetch_add(1000, Ordering::Relaxed) + skew)),
            ..Options::new("simulated", self.name.clone())
        };
        let replica = Arc::new(Replica::open(self.disk.dir(), options)?);
        let site = SyncAdapter::new(replica.clone(), self.net.clone(), self.contents.clone());
        let mut tokens = SmallRng::seed_from_u64(rng.random());
        let sync = Synchroniser::new(site, self.net.clone(), self.name.clone(), move || tokens.random());
        self.life = Some(RunningNode { replica, sync });
        self.set_faults(false, 0, NetworkMode::Open);
        Ok(())
    }

    /// Sets the state of the network.
    pub fn set_faults(&mut self, cut: bool, bad: u32, mode: NetworkMode) {
        let mut faults = self.net.state.lock();
        (faults.cut, faults.bad) = (cut, bad);
        *self.objects.mode.lock() = if cut { NetworkMode::Cut } else { mode };
        // A new fetcher has no memory of the earlier network state.
        let fetcher = StoreFetcher::new(self.net.clone(), self.contents.clone())
            .with_reachability(move || (!cut).then_some(0));
        self.life.as_ref().unwrap().replica.set_fetcher(Some(Arc::new(fetcher)));
    }

    /// Shuts down cleanly.
    pub fn shut(&mut self) -> Result<(), Errno> {
        for handle in std::mem::take(&mut self.open) {
            self.replica().release_open(handle.num, true, handle.session);
        }
        self.replica().sync()?;
        self.life = None;
        self.disk.closed();
        Ok(())
    }

    /// Ends without saving anything. Returns the contents that may be lost with it.
    pub fn crash(&mut self, crash: Crash, rng: &mut SmallRng) -> BTreeSet<u64> {
        log(|| format!("{} ends: {crash:?}", self.name));
        self.open.clear();
        self.disk.fail(crash, rng);
        self.life = None;
        self.disk.swap();
        self.wrote.clear();
        match crash {
            Crash::Process => BTreeSet::new(),
            Crash::Power => std::mem::take(&mut self.committed),
        }
    }

    pub fn step(&mut self) -> Result<Step, SyncError> {
        let step = self.life.as_mut().unwrap().sync.step();
        log(|| format!("{} step: {step:?}", self.name));
        step
    }

    /// Returns all dentries that listings show.
    pub fn places(&self) -> Result<Vec<PathEntry>, Errno> {
        let (mut found, mut queue) = (Vec::new(), vec![(ROOT, String::new())]);
        let mut seen = BTreeSet::new();
        while let Some((parent, path)) = queue.pop() {
            if !seen.insert(parent) {
                continue;
            }
            for listed in self.replica().list(parent, b"", 10_000)? {
                let path = format!("{path}/{}", listed.name.escape_ascii());
                if listed.inode.is_directory() {
                    queue.push((listed.inode.ino, path.clone()));
                }
                found.push(PathEntry { parent, name: listed.name, path, node: listed.inode });
            }
        }
        found.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Returns the content of a file, fetching it if needed.
    pub fn read(&self, num: u64) -> Result<Vec<u8>, Errno> {
        self.replica().ensure_present(num, 0..u64::MAX)?;
        let opened = self.replica().open_file(num, false, false)?;
        let bytes = held(&opened.file);
        self.replica().release_open(num, false, opened.session);
        Ok(bytes)
    }

    /// Returns the tree as users see it, by path.
    pub fn describe(&self) -> Result<BTreeMap<String, String>, String> {
        let mut all = BTreeMap::new();
        let failed = |path: &str| {
            let path = path.to_owned();
            move |errno: Errno| format!("{}: {path}: {errno}", self.name)
        };
        for place in self.places().map_err(failed("/"))? {
            let PathEntry { node, path, .. } = place;
            let mut what = format!("{:?} {:o} {:?} {:?}", node.kind, node.mode, node.target, node.modified);
            for name in self.replica().xattr_names(node.ino).map_err(failed(&path))? {
                let value = self.replica().xattr(node.ino, &name).map_err(failed(&path))?;
                what += &format!(" {}={value:?}", name.escape_ascii());
            }
            if node.kind == Kind::Regular {
                let bytes = self.read(node.ino).map_err(failed(&path))?;
                if bytes.len() as u64 != node.size {
                    return Err(format!("{}: {path} is {} bytes, not {}", self.name, bytes.len(), node.size));
                }
                what += &match token(&bytes) {
                    Some(token) => format!(" holds {token}"),
                    None if bytes.is_empty() => " is empty".into(),
                    None => {
                        format!(" holds {} other bytes: {:?}", bytes.len(), &bytes[..bytes.len().min(24)])
                    }
                };
            }
            all.insert(path, what);
        }
        Ok(all)
    }

    /// Overwrites a file with a content. Returns the previous one.
    pub fn put(&self, file: &File, token: u64) -> Option<u64> {
        let before = held(file);
        let bytes = bytes(token);
        file.write_all_at(&bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        // Timestamps use the simulated clock.
        let now = self.now().0;
        let time = rustix::fs::Timespec { tv_sec: now / 1_000_000_000, tv_nsec: now % 1_000_000_000 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(file, &times).unwrap();
        self::token(&before)
    }
}

/// Reads a whole file.
pub fn held(file: &File) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), [0; 1 << 16]);
    while let Ok(n @ 1..) = file.read_at(&mut buffer, all.len() as u64) {
        all.extend_from_slice(&buffer[..n]);
    }
    all
}

/// Returns the bytes of a content, in all lengths that are stored in different ways.
pub fn bytes(token: u64) -> Vec<u8> {
    let length = match token % 16 {
        0..10 => 8 + 8 * (token % 7),
        10..14 => 800 + 8 * (token % 301),
        14 => 24_000,
        _ => 120_000,
    };
    token.to_be_bytes().repeat(length as usize / 8)
}

/// Returns the content to which these bytes belong.
pub fn token(held: &[u8]) -> Option<u64> {
    let token = u64::from_be_bytes(*held.first_chunk()?);
    (bytes(token) == held).then_some(token)
}
