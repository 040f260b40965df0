//! Model of a disk that loses unsynced data at a power failure.
//!
//! The replica reports its fsyncs through failpoints. After a failure, the database's WAL is any prefix that contains all
//! synced data; a backing file has its synced content, its last content, or parts of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Once;

use parking_lot::Mutex;
use rand::RngExt as _;
use rand::rngs::SmallRng;
use shunt_volume::failpoint::{self, OnDisk};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// A process crash keeps all written data.
    Process,
    /// A power failure keeps synced data, and perhaps more.
    Power,
}

/// Synced data of a disk.
#[derive(Default)]
struct SyncedData {
    /// Synced length of the WAL in bytes.
    log: u64,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// Synced data by directory.
static DISKS: Mutex<BTreeMap<PathBuf, SyncedData>> = Mutex::new(BTreeMap::new());

const LOG: &str = "replica.db-wal";

fn written_out(what: OnDisk<'_>) {
    let file = match what {
        OnDisk::File(file) | OnDisk::All(file) => file,
    };
    let Ok(path) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) else { return };
    let mut disks = DISKS.lock();
    let Some((dir, synced)) = disks.iter_mut().find(|(dir, _)| path.starts_with(dir)) else { return };
    match what {
        OnDisk::All(_) => synced.files = files(&dir.join("data")).unwrap(),
        OnDisk::File(_) if path.ends_with(LOG) => synced.log = file.metadata().unwrap().len(),
        // An unlinked file does not matter.
        OnDisk::File(_) => drop(fs::read(&path).map(|bytes| synced.files.insert(path, bytes))),
    }
}

fn files(data: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    if !data.exists() {
        return Ok(found);
    }
    for group in fs::read_dir(data)? {
        for file in fs::read_dir(group?.path())? {
            let path = file?.path();
            found.insert(path.clone(), fs::read(path)?);
        }
    }
    Ok(found)
}

pub struct PowerFailDisk {
    dir: PathBuf,
    /// Contents left by partial writes, which no user was promised.
    pub damaged: BTreeSet<Vec<u8>>,
}

impl PowerFailDisk {
    pub fn new(dir: PathBuf) -> Self {
        static OBSERVED: Once = Once::new();
        OBSERVED.call_once(|| failpoint::observe(Some(Box::new(written_out))));
        DISKS.lock().insert(dir.clone(), SyncedData::default());
        Self { dir, damaged: BTreeSet::new() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// SQLite has checkpointed its WAL, and synced both files.
    pub fn closed(&self) {
        DISKS.lock().get_mut(&self.dir).unwrap().log = 0;
    }

    /// Creates the disk as it is after a failure, next to the one still in use until [`swap`](Self::swap).
    pub fn fail(&mut self, crash: Crash, rng: &mut SmallRng) {
        let next = self.next();
        fs::create_dir(&next).unwrap();
        fs::rename(self.dir.join("data"), next.join("data")).ok();
        fs::copy(self.dir.join("replica.db"), next.join("replica.db")).ok();
        let log = fs::read(self.dir.join(LOG)).unwrap_or_default();
        if crash == Crash::Process {
            fs::write(next.join(LOG), log).unwrap();
            return;
        }
        let mut disks = DISKS.lock();
        let synced = disks.get_mut(&self.dir).unwrap();
        let (min, max) = (synced.log.min(log.len() as u64), log.len() as u64);
        let kept = match rng.random_range(0..3) {
            0 => min,
            1 => max,
            _ => rng.random_range(min..=max),
        };
        fs::write(next.join(LOG), &log[..kept as usize]).unwrap();
        let db = rusqlite::Connection::open(next.join("replica.db")).unwrap();
        // The tables do not exist yet if nothing of the database was synced.
        db.execute("UPDATE meta SET value = 'another' WHERE key = 'boot'", []).ok();
        drop(db);
        synced.log = 0;
        self.damaged.extend(damage(&self.dir, &next, synced, rng));
        synced.files = files(&next.join("data")).unwrap();
        synced.files = std::mem::take(&mut synced.files)
            .into_iter()
            .map(|(path, bytes)| (self.dir.join(path.strip_prefix(&next).unwrap()), bytes))
            .collect();
    }

    /// Replaces the old disk, which is no longer in use.
    pub fn swap(&self) {
        fs::remove_dir_all(&self.dir).unwrap();
        fs::rename(self.next(), &self.dir).unwrap();
    }

    fn next(&self) -> PathBuf {
        self.dir.with_extension("next")
    }
}

impl Drop for PowerFailDisk {
    fn drop(&mut self) {
        DISKS.lock().remove(&self.dir);
    }
}

/// Replaces unsynced contents of backing files. Returns the resulting contents.
fn damage(dir: &Path, next: &Path, synced: &SyncedData, rng: &mut SmallRng) -> Vec<Vec<u8>> {
    let here = |path: &Path| next.join(path.strip_prefix(dir).unwrap());
    let mut damaged = Vec::new();
    for (path, bytes) in files(&next.join("data")).unwrap() {
        let known = synced.files.get(&dir.join(path.strip_prefix(next).unwrap()));
        if known == Some(&bytes) {
            continue;
        }
        let there = match rng.random_range(0..5) {
            0 => continue,
            1 => match known {
                Some(known) => known.clone(),
                None => {
                    fs::remove_file(path).unwrap();
                    continue;
                }
            },
            2 => Vec::new(),
            3 => bytes[..bytes.len() / 2].to_vec(),
            _ => vec![0; bytes.len()],
        };
        fs::write(path, &there).unwrap();
        damaged.push(there);
    }
    for (path, bytes) in &synced.files {
        // The removal was not synced.
        let path = here(path);
        if !path.exists() && rng.random_range(0..3) == 0 {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }
    damaged
}

/// Creates a directory in memory if possible.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if File::open(memory).is_ok() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
