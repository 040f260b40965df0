//! A simulated user, who continues to work on a node during faults.

mod attributes;
mod namespace;
mod partial_writes;
mod reads;
mod removals;
mod whole_files;

use std::cell::RefCell;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use shunt_tests::Rng;

pub use attributes::ATTRIBUTE;

use crate::volume_soak::cluster::{Cluster, NODES, lock};
use crate::volume_soak::durability_ledger::Ledger;

/// Few names, so that nodes use the same ones.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX_DEPTH: usize = 3;
/// With more files, deletions are more frequent than creations.
const MAX_FILES: usize = 120;
/// Maximum age of a cached listing.
const MAX_LISTING_AGE: Duration = Duration::from_millis(400);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

/// A file that stays open.
struct Handle {
    file: File,
    path: PathBuf,
}

pub struct User<'a> {
    cluster: &'a Cluster,
    node: usize,
    rng: Rng,
    open: Vec<Handle>,
    known: Vec<(PathBuf, Kind)>,
    looked: Option<Instant>,
    /// Number of files renamed aside.
    asides: u64,
    /// The last log line.
    output: RefCell<String>,
}

/// Errors that users must expect.
const USUAL: [Errno; 12] = [
    Errno::NOENT,
    Errno::EXIST,
    Errno::NOTEMPTY,
    Errno::PERM,
    Errno::BUSY,
    Errno::NETUNREACH,
    Errno::ISDIR,
    Errno::NOTDIR,
    Errno::INVAL,
    Errno::NODATA,
    // A symlink that refers to itself replaced the file.
    Errno::LOOP,
    // Another version arrived before all of this one was cached, or the file was deleted.
    Errno::STALE,
];

/// Slower calls are logged: twice the lifetime of an unresponsive node's lease.
const SLOW: Duration = Duration::from_secs(10);

impl<'a> User<'a> {
    pub fn new(cluster: &'a Cluster, node: usize, seed: u64) -> Self {
        let rng = Rng::new(seed * 100 + 50 + node as u64);
        Self {
            cluster,
            node,
            rng,
            open: Vec::new(),
            known: Vec::new(),
            looked: None,
            asides: 0,
            output: RefCell::default(),
        }
    }

    /// Works until stopped.
    pub fn work(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let life = self.life();
            let begun = Instant::now();
            let done = self.act();
            let took = begun.elapsed();
            let same_life = life.is_some() && life == self.life();
            if same_life {
                self.cluster.counts.slowest_ms.at_least(took.as_millis() as u64);
                if took >= SLOW {
                    let output = self.output.borrow();
                    eprintln!(
                        "volume-soak: slow: {}: {took:.1?}, {done:?}; before it {output}",
                        NODES[self.node]
                    );
                }
            }
            match done {
                Ok(()) => self.cluster.counts.operations.add(1),
                Err(error) => self.failed(&error, same_life),
            }
            std::thread::sleep(Duration::from_millis(self.rng.below(12) as u64));
        }
        for handle in std::mem::take(&mut self.open) {
            self.log(format_args!("closes {:?}", handle.path));
        }
    }

    fn life(&self) -> Option<u64> {
        self.cluster.nodes[self.node].life()
    }

    fn failed(&mut self, error: &io::Error, same_life: bool) {
        self.looked = None;
        let errno = Errno::from_io_error(error);
        if !same_life {
            // The open files belong to an earlier mount.
            self.open.clear();
            std::thread::sleep(Duration::from_millis(50));
        } else if errno.is_none_or(|errno| !USUAL.contains(&errno)) {
            let what = self.output.take();
            self.cluster.note(format!("{} got {error}, after: {what}", NODES[self.node]));
        }
    }

    fn log(&self, what: std::fmt::Arguments<'_>) {
        self.output.replace(what.to_string());
        self.cluster.log(format_args!("{}: {what}", NODES[self.node]));
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        lock(&self.cluster.ledger)
    }

    fn look(&mut self) -> io::Result<()> {
        if self.looked.is_some_and(|when| when.elapsed() < MAX_LISTING_AGE) {
            return Ok(());
        }
        self.known.clear();
        let work = self.cluster.nodes[self.node].work();
        let mut below = vec![work];
        while let Some(directory) = below.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                // A side of a conflict, or a file about to be removed.
                let is_left = |name: &str| NODES.contains(&name) || name.starts_with('.');
                if entry.file_name().to_str().is_none_or(is_left) {
                    continue;
                }
                let kind = match (kind.is_dir(), kind.is_file()) {
                    (true, _) => Kind::Directory,
                    (_, true) => Kind::File,
                    _ => Kind::Link,
                };
                if kind == Kind::Directory {
                    below.push(path.clone());
                }
                self.known.push((path, kind));
            }
        }
        self.looked = Some(Instant::now());
        Ok(())
    }

    fn pick(&mut self, kind: impl Fn(Kind) -> bool) -> io::Result<PathBuf> {
        let all: Vec<&PathBuf> = self.known.iter().filter(|one| kind(one.1)).map(|one| &one.0).collect();
        match all.len() {
            0 => Err(Errno::NOENT.into()),
            count => Ok(all[self.rng.below(count)].clone()),
        }
    }

    fn file(&mut self) -> io::Result<PathBuf> {
        self.pick(|kind| kind == Kind::File)
    }

    /// Returns a random path, which may exist.
    fn place(&mut self) -> PathBuf {
        let work = self.cluster.nodes[self.node].work();
        let mut parent = self.pick(|kind| kind == Kind::Directory).unwrap_or_else(|_| work.clone());
        if self.rng.below(3) == 0
            || parent.strip_prefix(&work).map_or(0, |path| path.components().count()) >= MAX_DEPTH
        {
            parent = work;
        }
        parent.join(NAMES[self.rng.below(NAMES.len())])
    }

    fn act(&mut self) -> io::Result<()> {
        self.look()?;
        let less = self.known.len() > MAX_FILES && self.rng.below(2) == 0;
        let what = if less { 81 + self.rng.below(12) } else { self.rng.below(100) };
        match what {
            0..15 => self.create(),
            15..21 => self.make_directory(),
            21..33 => self.rewrite(),
            33..45 => self.edit(),
            45..52 => self.replace(),
            52..55 => self.cut(),
            55..58 => self.set_mode(),
            58..61 => self.set_attribute(),
            61..65 => self.set_time(),
            65..75 => self.rename(),
            75..79 => self.link(),
            79..81 => self.make_link(),
            81..84 => self.remove_link(),
            84..89 => self.remove_file(),
            89..91 => self.remove_directory(),
            91..93 => self.remove_tree(),
            93..97 => self.go_on(),
            _ => self.sync_what_is_there(),
        }
    }
}
