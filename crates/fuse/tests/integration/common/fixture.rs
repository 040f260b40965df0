//! Mounts the test file system for the duration of a test.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shunt_fuse::mount::{MountError, MountOptions, MountPoint, Unmount};
use shunt_fuse::{Caches, Config, Handle, Mounted, NodeId, Opcode, Passthrough, Profile, Transport};
use shunt_test_support::pace;
pub use shunt_test_support::rings::over_rings;
pub use shunt_test_support::skip::skip;

use super::watchdog::Watchdog;
use super::{TestFs, eventually};

/// Mount configuration and timeout of a test.
pub struct Plan {
    pub config: Config,
    pub options: MountOptions,
    pub timeout: Duration,
}

impl Plan {
    pub fn passthrough() -> Self {
        Self::of(Config::new(Profile::Passthrough))
    }

    pub fn writeback() -> Self {
        Self::of(Config::new(Profile::Writeback))
    }

    pub fn of(config: Config) -> Self {
        let config = if over_rings() { config.transport(Transport::Uring) } else { config };
        let options = MountOptions::new().fsname("shunt-test").allow_other(true).nosuid(false);
        Self { config, options, timeout: Duration::from_secs(60) }
    }

    pub fn config(mut self, change: impl FnOnce(Config) -> Config) -> Self {
        self.config = change(self.config);
        self
    }

    pub fn options(mut self, change: impl FnOnce(MountOptions) -> MountOptions) -> Self {
        self.options = change(self.options);
        self
    }

    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = Duration::from_secs(seconds);
        self
    }
}

/// Returns the number of CPUs, and so of the queues of a ring session.
pub fn processors() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

/// Reports whether tests on mounts can run here; if not, prints the reason.
pub fn can_mount() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else {
        return true;
    };
    skip(reason);
    false
}

/// A mounted test file system.
pub struct Fixture {
    pub fs: Arc<TestFs>,
    pub handle: Handle,
    pub point: MountPoint,
    mount_dir: TestMountDir,
    mounted: Mutex<Option<Mounted>>,
}

/// A directory to mount on. It is not removed while something is mounted in it.
pub struct TestMountDir(Option<tempfile::TempDir>);

impl TestMountDir {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("mnt")).unwrap();
        Self(Some(dir))
    }

    pub fn outer(&self) -> &Path {
        self.0.as_ref().unwrap().path()
    }

    pub fn path(&self) -> PathBuf {
        self.outer().join("mnt")
    }
}

impl Drop for TestMountDir {
    fn drop(&mut self) {
        let prefix = self.outer().to_str().unwrap().to_owned();
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let ours = |line: &&str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(&prefix));
        for line in table.lines().rev().filter(ours) {
            let at = line.split(' ').nth(4).unwrap();
            let flags = rustix::mount::UnmountFlags::DETACH;
            if rustix::mount::unmount(at, flags).is_err()
                && let Some(dir) = self.0.take()
            {
                // Removing it would remove the contents of the mount.
                let _ = dir.keep();
                return;
            }
        }
    }
}

/// Runs a test on a mount of an empty test file system.
pub fn run(plan: Plan, body: impl FnOnce(&Fixture)) {
    run_with(plan, TestFs::new(), body);
}

/// Runs a test on a mount of this test file system.
pub fn run_with(plan: Plan, fs: TestFs, body: impl FnOnce(&Fixture)) {
    if !can_mount() {
        return;
    }
    let watchdog = Watchdog::start(plan.timeout);
    let mount_dir = TestMountDir::new();
    let fs = Arc::new(fs);
    let switch = shunt_test_support::rings::keep();
    let mounted = shunt_fuse::mount::<TestFs>(fs.clone(), plan.config, &mount_dir.path(), &plan.options)
        .expect("mount");
    drop(switch);
    let point = mounted.mount_point().clone();
    watchdog.guard(&point);
    let in_use = mounted.handle().transport();
    assert!(!over_rings() || in_use.transport == Transport::Uring, "SHUNT_TRANSPORT=uring, but {in_use:?}");
    let fixture = Fixture {
        fs,
        handle: mounted.handle().clone(),
        point,
        mount_dir,
        mounted: Mutex::new(Some(mounted)),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| {
        body(&fixture);
        if let Some(mounted) = fixture.take() {
            unmount(mounted);
        }
    }));
    if ended.is_err() {
        fixture.point.abort().ok();
        fixture.point.unmount(Unmount::Lazy).ok();
    }
    let late = watchdog.end();
    if let Err(panic) = ended {
        resume_unwind(panic);
    }
    assert!(!late, "the time limit was exceeded");
}

/// Unmounts, with retries while a child between fork and exec holds files of the mount.
#[track_caller]
pub fn unmount(mut mounted: Mounted) {
    let start = Instant::now();
    loop {
        match mounted.unmount(Unmount::Normal) {
            Ok(served) => return served.expect("the session ends without an error"),
            Err(failed) => match *failed {
                (back, MountError::Busy(_)) if start.elapsed() < pace::seconds(5) => mounted = back,
                (_, error) => panic!("{error}"),
            },
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Fixture {
    /// Returns a path in the mount.
    pub fn path(&self, name: &str) -> PathBuf {
        self.mount_dir.path().join(name)
    }

    pub fn root(&self) -> PathBuf {
        self.mount_dir.path()
    }

    /// Returns a path outside the mount.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.mount_dir.outer().join(name)
    }

    pub fn caches(&self) -> &Caches {
        self.handle.caches()
    }

    #[track_caller]
    pub fn passthrough(&self) -> &Passthrough {
        self.handle.passthrough().expect("passthrough is in force")
    }

    /// Takes the mount out of the fixture, for tests that end it themselves.
    pub fn take(&self) -> Option<Mounted> {
        self.mounted.lock().take()
    }

    /// Returns how many requests of an operation arrived since the mount.
    pub fn count(&self, op: Opcode) -> u64 {
        self.handle.statistics().count(op)
    }

    /// Returns how many requests of an operation arrive during a call.
    pub fn during<R>(&self, op: Opcode, call: impl FnOnce() -> R) -> (u64, R) {
        let before = self.count(op);
        let result = call();
        (self.count(op) - before, result)
    }

    /// Waits until the kernel has released every open file.
    #[track_caller]
    pub fn all_released(&self) {
        eventually("every open file is released", || self.handle.open_nodes() == 0);
    }

    /// Returns the node id of a file: the inode numbers of the test file system are its node ids.
    pub fn node(&self, name: &str) -> NodeId {
        use std::os::unix::fs::MetadataExt;
        NodeId(std::fs::symlink_metadata(self.path(name)).unwrap().ino())
    }
}
