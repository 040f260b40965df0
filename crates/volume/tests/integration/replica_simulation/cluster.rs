//! A simulated volume with its nodes, and the checks at the end of a simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use shunt_volume::address::MetaAddress;
use shunt_volume::crypto::VolumeKey;
use shunt_volume::failpoint::{disarm, has_failed};
use shunt_volume::maintenance::{self, Depth, collect};
use shunt_volume::open::{Options, create};
use shunt_volume::store::history::Retention;
use shunt_volume::store::{StoreError, Transaction};
use shunt_volume::sync::{Step, SyncError};
use shunt_volume::volume::Volume;
use tempfile::TempDir;

use crate::common::faulty_object_store::NetworkMode;
use crate::replica_simulation::node::{Node, bytes, token};
use crate::replica_simulation::power_fail_disk::{Crash, scratch};
use crate::replica_simulation::user::{Promises, User};
use crate::replica_simulation::{invariants, log};

/// Maximum number of rounds until all nodes agree.
const ROUNDS: u32 = 300;

pub struct Cluster {
    pub nodes: Vec<Node>,
    pub volume: Volume,
    pub promises: Promises,
    pub rng: SmallRng,
    clock: Arc<AtomicI64>,
    dir: TempDir,
    secret: Option<VolumeKey>,
}

/// Uploads a pack that nothing references, except for chunks that users write as these tokens, so that it gets compacted.
pub fn litter(volume: &Volume, tokens: &[u64]) {
    let mut upload = volume.content.upload(&*volume.meta);
    let mut noise = [0; 100_000];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    let wanted = tokens.iter().map(|token| bytes(*token));
    for bytes in wanted.chain(noise.chunks(5000).map(<[u8]>::to_vec)) {
        upload.put(&bytes[..], bytes.len() as u64, None).unwrap();
    }
    let item = Transaction { chunks: upload.finish().unwrap().chunks, ..Transaction::default() };
    volume.meta.commit(&"litter".parse().unwrap(), rand::random(), &[item]).unwrap().remove(0).unwrap();
}

impl Cluster {
    pub fn new(seed: u64, nodes: usize) -> Self {
        let dir = scratch();
        let at = MetaAddress::Sqlite(dir.path().join("volume"));
        // Some volumes are encrypted: their store does not know their contents.
        let secret = (seed % 8 == 3).then(|| VolumeKey::parse(&"5a".repeat(32)).unwrap());
        let options = Options { secret: secret.clone(), ..Options::default() };
        let volume = create(&at, &"simulated".parse().unwrap(), &options).unwrap();
        // Without history, unreferenced data may be freed at once.
        let kept = Retention { age: Some(Duration::ZERO), versions: Some(0) };
        maintenance::set_retention(volume.admin().unwrap(), kept).unwrap();
        let mut cluster = Self {
            nodes: Vec::new(),
            volume,
            promises: Promises::default(),
            rng: SmallRng::seed_from_u64(seed),
            clock: Arc::new(AtomicI64::new(1_000_000_000_000_000_000)),
            dir,
            secret,
        };
        (0..nodes).for_each(|n| cluster.join(&format!("node{n}")));
        cluster
    }

    fn join(&mut self, name: &str) {
        let seed = self.rng.random();
        let mut node =
            Node::new(name, self.dir.path(), (&self.volume, self.secret.as_ref()), &self.clock, seed);
        node.boot(&mut self.rng).unwrap();
        self.nodes.push(node);
    }

    pub fn user(&mut self, n: usize) -> User<'_> {
        User { node: &mut self.nodes[n], rng: &mut self.rng, promises: &mut self.promises }
    }

    /// Runs a synchronisation round of a node. It may fail while the network is bad.
    pub fn step(&mut self, n: usize, good: bool) -> Result<Step, String> {
        match self.nodes[n].step() {
            Err(SyncError::Store(StoreError::Unreachable(_))) if !good => Ok(Step::default()),
            step => step.map_err(|error| format!("{} cannot go on: {error}", self.nodes[n].name)),
        }
    }

    /// Ends a node, and starts it again.
    pub fn crash(&mut self, n: usize, crash: Crash) -> Result<(), String> {
        let Self { nodes, rng, promises, .. } = self;
        let node = &mut nodes[n];
        for token in node.crash(crash, rng) {
            promises.due.remove(&token);
        }
        node.boot(rng).map_err(|error| format!("{} does not start: {error}", node.name))?;
        invariants::check(node)
    }

    /// Runs an operation with an armed failpoint. If that fired, the node crashes with it.
    pub fn survive(
        &mut self,
        n: usize,
        crash: Crash,
        work: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<bool, String> {
        let done = work(self);
        if has_failed() {
            disarm();
            log(|| format!("{done:?} is the end of {}", self.nodes[n].name));
            self.crash(n, crash)?;
            return Ok(true);
        }
        done.map(|()| false)
    }

    /// Truncates the log, so that nodes that were offline for long have to read the whole tree. A sealed log is never
    /// truncated.
    pub fn forget(&mut self, count: u64) -> Result<(), String> {
        if self.volume.described.sealed.is_some() {
            return Ok(());
        }
        let admin = self.volume.admin().map_err(|error| error.to_string())?;
        let max = shunt_volume::object::Time(i64::MAX);
        admin.truncate_log(max, count).map(drop).map_err(|error| error.to_string())
    }

    pub fn collect(&self, grace: Duration) -> Result<(), String> {
        collect(&self.volume, grace, None, &|_, _| ()).map(drop).map_err(|error| format!("gc: {error}"))
    }

    /// Runs rounds until no node has anything to do.
    pub fn settle(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            let mut quiet = true;
            for n in 0..self.nodes.len() {
                let step = self.step(n, true)?;
                quiet &= Step { blocked: 0, ..step } == Step::default();
            }
            if quiet {
                return Ok(());
            }
        }
        let pending: Vec<_> = self.nodes.iter().map(|node| node.replica().pending_count()).collect();
        Err(format!("there is no end: {pending:?}"))
    }

    fn heal(&mut self) -> Result<(), String> {
        for n in 0..self.nodes.len() {
            self.nodes[n].set_faults(false, 0, NetworkMode::Open);
            for handle in std::mem::take(&mut self.nodes[n].open) {
                self.nodes[n].replica().release_open(handle.num, true, handle.session);
            }
            self.nodes[n].replica().commit().map_err(|errno| format!("commit: {errno}"))?;
            self.user(n).committed();
        }
        self.settle()
    }

    fn seen(&self, n: usize) -> Result<BTreeSet<u64>, String> {
        let node = &self.nodes[n];
        let mut found = BTreeSet::new();
        let failed = |path: &str, errno: rustix::io::Errno| format!("{}: {path}: {errno}", node.name);
        for place in node.places().map_err(|errno| failed("/", errno))? {
            if place.node.is_regular() {
                let held = node.read(place.node.ino).map_err(|errno| failed(&place.path, errno))?;
                match token(&held) {
                    Some(token) => drop(found.insert(token)),
                    None if held.is_empty() => {}
                    // Unsynced data may be arbitrary after a power failure, and is pushed like all other data.
                    None if self.nodes.iter().any(|node| node.disk.damaged.contains(&held)) => {}
                    None => {
                        let head = &held[..held.len().min(24)];
                        let what = format!("{} bytes of nobody: {head:?}", held.len());
                        return Err(format!("{}: {}: {what}", node.name, place.path));
                    }
                }
            }
        }
        Ok(found)
    }

    fn nothing_lost(&self, seen: &BTreeSet<u64>) -> Result<(), String> {
        let lost = self.promises.lost(seen);
        if lost.is_empty() { Ok(()) } else { Err(format!("contents {lost:?} are lost")) }
    }

    /// Ends all failures, and checks all promises. With `deep` it also checks a new node, after all unreferenced data was
    /// freed.
    pub fn judge(&mut self, deep: bool) -> Result<(), String> {
        self.heal()?;
        let mut seen = BTreeSet::new();
        for n in 0..self.nodes.len() {
            invariants::check(&self.nodes[n])?;
            seen.extend(self.seen(n)?);
        }
        self.nothing_lost(&seen)?;
        self.resolve_all()?;
        if deep {
            // Marks, drops, and deletes.
            for _ in 0..3 {
                self.collect(Duration::ZERO)?;
            }
            for node in &self.nodes {
                node.replica().evict(u64::MAX).map_err(|errno| format!("evict: {errno}"))?;
            }
            self.join("latest");
            self.settle()?;
        }
        let mut first: Option<BTreeMap<String, String>> = None;
        for n in 0..self.nodes.len() {
            invariants::check(&self.nodes[n])?;
            let tree = self.nodes[n].describe()?;
            self.nothing_lost(&self.seen(n)?)?;
            if self.nodes[n].replica().pending_count() != Ok(0) {
                return Err(format!("{} has changes that do not go", self.nodes[n].name));
            }
            match &first {
                Some(other) if *other != tree => {
                    let differ = tree.iter().find(|(path, what)| other.get(*path) != Some(what));
                    let differ = differ.or_else(|| other.iter().find(|(path, _)| !tree.contains_key(*path)));
                    let path = differ.unwrap().0;
                    return Err(format!(
                        "{} has {path} as {:?}, and another as {:?}",
                        self.nodes[n].name,
                        tree.get(path),
                        other.get(path)
                    ));
                }
                _ => first = Some(tree),
            }
        }
        let checked = maintenance::fsck(&self.volume, Depth::Contents, &|_, _| ())
            .map_err(|error| error.to_string())?;
        if checked.count == 0 { Ok(()) } else { Err(format!("the volume is not sound: {checked:?}")) }
    }

    /// Keeps both sides of each conflict, after which all nodes have the same tree.
    fn resolve_all(&mut self) -> Result<(), String> {
        for _ in 0..20 {
            let mut there = false;
            for node in &self.nodes {
                for (at, _) in node.replica().conflicts().map_err(|errno| errno.to_string())? {
                    there = true;
                    log(|| format!("{} keeps both of {at:?}", node.name));
                    // Resolving one conflict may have ended another.
                    node.replica().keep_both(&at).ok();
                }
            }
            self.settle()?;
            if !there {
                return Ok(());
            }
        }
        Err("conflicts do not end".into())
    }
}
