//! Failpoint tests with real processes: a node with all its threads runs in a process of its own, which is killed at each
//! failpoint.
//!
//! The process runs this test binary; its environment selects the role.

use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shunt_volume::address::MetaAddress;
use shunt_volume::failpoint::Failpoint;
use shunt_volume::id::OwnerId;
use shunt_volume::maintenance::{Depth, collect, fsck, set_retention};
use shunt_volume::object::Kind;
use shunt_volume::open::{Options as Wanted, create, open};
use shunt_volume::replica::{NewObject, Options, ROOT, Replica, StoreFetcher, SyncAdapter};
use shunt_volume::store::history::Retention;
use shunt_volume::sync::{Runner, Synchroniser};
use shunt_volume::volume::Volume;

use crate::replica_simulation::cluster::litter;
use crate::replica_simulation::node::{bytes, held, token};
use crate::replica_simulation::power_fail_disk::scratch;

const DIRECTORY_VARIABLE: &str = "SHUNT_KILLED_IN";
const FILES: u64 = 16;
const ROUNDS: u32 = 4;
/// Timeout for a busy machine; each step is short otherwise.
const TEST_TIMEOUT: Duration = Duration::from_secs(180);

fn volume(dir: &Path) -> Volume {
    let (at, name) = (MetaAddress::Sqlite(dir.join("volume")), "killed".parse().unwrap());
    open(&at, &name, None).unwrap_or_else(|_| create(&at, &name, &Wanted::default()).unwrap())
}

struct Live {
    replica: Arc<Replica>,
    runner: Runner,
}

fn live(dir: &Path, node: &str, volume: &Volume) -> Live {
    let options = Options::new("killed", node.parse().unwrap());
    let replica = Arc::new(Replica::open(&dir.join(node), options).unwrap());
    let (meta, content) = (volume.meta.clone(), volume.content.clone());
    replica.set_fetcher(Some(Arc::new(StoreFetcher::new(meta.clone(), content.clone()))));
    let site = SyncAdapter::new(replica.clone(), meta.clone(), content);
    let sync = Synchroniser::new(site, meta.clone(), node.parse().unwrap(), rand::random);
    let runner = Runner::start(sync, meta, true).unwrap();
    let waker = runner.waker();
    replica.set_watcher(Some(Box::new(move || waker.wake())));
    Live { replica, runner }
}

impl Live {
    /// Writes a new content, and records the promise once it is durable.
    fn write(&self, dir: &Path, file: u64) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (token, name) = (NEXT.fetch_add(1, Ordering::Relaxed), format!("file{file}"));
        let new =
            NewObject { kind: Kind::Regular, mode: 0o600, owner: OwnerId(0), group: OwnerId(0), target: b"" };
        let node = self.replica.lookup(ROOT, name.as_bytes());
        let node = node.or_else(|_| self.replica.make(ROOT, name.as_bytes(), new)).unwrap();
        let promise = dir.join(format!("promised{file}"));
        std::fs::remove_file(&promise).ok();
        let opened = self.replica.open_file(node.ino, true, true).unwrap();
        opened.file.write_all_at(&bytes(token), 0).unwrap();
        self.replica.sync_file(node.ino).unwrap();
        std::fs::write(&promise, token.to_string()).unwrap();
        self.replica.release_open(node.ino, true, opened.session);
    }

    fn read(&self, file: u64) -> Option<u64> {
        let node = self.replica.lookup(ROOT, format!("file{file}").as_bytes()).ok()?;
        self.replica.ensure_present(node.ino, 0..u64::MAX).ok()?;
        let opened = self.replica.open_file(node.ino, false, false).ok()?;
        let found = token(&held(&opened.file));
        self.replica.release_open(node.ino, false, opened.session);
        found
    }

    fn settle(&self, volume: &Volume) {
        let since = Instant::now();
        let is_done = || {
            let all = volume.meta.head().unwrap();
            self.replica.commit().unwrap();
            self.replica.pending_count() == Ok(0) && self.replica.cursor() == Ok(all)
        };
        while !is_done() {
            assert!(since.elapsed() < TEST_TIMEOUT, "{:?}", self.runner);
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Runs all operations of a node several times, starting from the state of an earlier run.
fn work(dir: &Path) {
    let volume = volume(dir);
    set_retention(volume.admin().unwrap(), Retention { age: Some(Duration::ZERO), versions: Some(0) })
        .unwrap();
    for _ in 0..ROUNDS {
        let ant = live(dir, "ant", &volume);
        // Two unaware writers of the same file would conflict, and no user of this test resolves conflicts.
        ant.settle(&volume);
        (0..FILES).for_each(|file| ant.write(dir, file));
        ant.settle(&volume);
        ant.replica.evict(u64::MAX).unwrap();
        (0..FILES).for_each(|file| assert!(ant.read(file).is_some()));
        // Downloaded data is fsynced.
        ant.write(dir, 3);
        std::fs::remove_file(dir.join("promised0")).unwrap();
        ant.replica.unlink(ROOT, b"file0").unwrap();
        ant.replica.sync().unwrap();
        ant.replica.reap(100).unwrap();
        ant.settle(&volume);
        drop(ant);
        // A node that joins now has not followed the log.
        let bee = live(dir, "bee", &volume);
        bee.settle(&volume);
        bee.write(dir, 1);
        bee.settle(&volume);
        volume.admin().unwrap().truncate_log(shunt_volume::object::Time(i64::MAX), 0).unwrap();
        drop(bee);
        for _ in 0..3 {
            collect(&volume, Duration::ZERO, None, &|_, _| ()).unwrap();
        }
    }
}

fn killed_at(point: Failpoint) -> Result<(), String> {
    let dir = scratch();
    litter(&volume(dir.path()), &[11]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["replica_simulation::process_kill::is_killed", "--exact", "--ignored"])
        .env(DIRECTORY_VARIABLE, dir.path())
        .env("SHUNT_FAIL", point.name())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let since = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if since.elapsed() > TEST_TIMEOUT => {
                child.kill().unwrap();
                child.wait().unwrap();
                return Err(format!("{point:?} is never reached"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if status.signal() != Some(9) {
        return Err(format!("{point:?} is never reached: {status}"));
    }
    let volume = volume(dir.path());
    let nodes = ["ant", "bee", "cat"].map(|node| live(dir.path(), node, &volume));
    for node in nodes.iter().chain(&nodes) {
        node.settle(&volume);
    }
    for file in 0..FILES {
        let promised = std::fs::read_to_string(dir.path().join(format!("promised{file}")));
        let promised: Option<u64> = promised.ok().and_then(|text| text.parse().ok());
        let found = nodes.each_ref().map(|node| node.read(file));
        if promised.is_some() && found[0] != promised || found.iter().any(|one| *one != found[0]) {
            return Err(format!("{point:?}: file{file} was to hold {promised:?}, and holds {found:?}"));
        }
    }
    let checked = fsck(&volume, Depth::Contents, &|_, _| ()).map_err(|error| error.to_string())?;
    if checked.count > 0 { Err(format!("{point:?}: {checked:?}")) } else { Ok(()) }
}

#[test]
#[ignore = "is a process that a test starts"]
fn is_killed() {
    if let Some(dir) = std::env::var_os(DIRECTORY_VARIABLE) {
        work(Path::new(&dir));
    }
}

#[test]
#[ignore = "takes a while: make simulate"]
fn a_process_may_be_killed_at_every_point() {
    let _alone = crate::replica_simulation::ALONE.lock();
    let outcomes: Vec<String> = Failpoint::ALL.iter().filter_map(|point| killed_at(*point).err()).collect();
    assert!(outcomes.is_empty(), "{}", outcomes.join("\n"));
    println!("{} points, at each of which a process was killed", Failpoint::ALL.len());
}
