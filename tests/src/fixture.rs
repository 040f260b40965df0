//! Test fixture: a source with a mirror of it, and the check that nothing remains afterwards.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use shunt_test_support::cmd::{Ran, patiently, run_for, within};
use shunt_test_support::{rings, skip};
use tempfile::TempDir;

use crate::lower_fs::{Lower, Source, temp_dir};
use crate::{binary, mounts};

/// Configuration of a fixture.
#[derive(Clone, Debug)]
pub struct Plan {
    lower: Lower,
    args: Vec<String>,
    files: Option<u64>,
    patience: Duration,
    mounted: bool,
}

impl Plan {
    /// A source on tmpfs, with passthrough.
    pub fn tmpfs() -> Self {
        Self {
            lower: Lower::Tmpfs,
            args: Vec::new(),
            files: None,
            patience: Duration::from_secs(60),
            mounted: true,
        }
    }

    /// A source on ext4, with passthrough.
    pub fn ext4() -> Self {
        Self { lower: Lower::Ext4, ..Self::tmpfs() }
    }

    /// The root of an XFS, with passthrough.
    pub fn xfs() -> Self {
        Self { lower: Lower::Xfs, ..Self::tmpfs() }
    }

    /// The root of a btrfs, with passthrough.
    pub fn btrfs() -> Self {
        Self { lower: Lower::Btrfs, ..Self::tmpfs() }
    }

    /// A source on tmpfs, with data through the daemon.
    pub fn daemon() -> Self {
        Self::tmpfs().args(&["--passthrough", "off"])
    }

    /// A source on tmpfs, with data through the daemon, and without OPEN requests.
    pub fn no_open() -> Self {
        Self::daemon().args(&["--cache", "exclusive"])
    }

    /// Adds options for `shunt mirror`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        self
    }

    /// Limits the open files of the daemon (`ulimit -n`).
    pub fn open_files(mut self, limit: u64) -> Self {
        self.files = Some(limit);
        self
    }

    /// Sets the time after which a hung test is ended by killing the daemon (default 60 seconds).
    pub fn patience(mut self, seconds: u64) -> Self {
        self.patience = Duration::from_secs(seconds);
        self
    }

    /// Creates the two directories without a mount.
    pub fn unmounted(mut self) -> Self {
        self.mounted = false;
        self
    }

    /// Like [`Plan::set`], but skips the test if that is not possible.
    pub fn set_or_skip(&self) -> Option<Fixture> {
        self.set().map_err(|reason| skip::skip(&reason)).ok()
    }

    /// Sets up the fixture, or returns why that is not possible.
    ///
    /// # Panics
    /// If the mirror does not start.
    pub fn set(&self) -> Result<Fixture, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("needs root".to_owned());
        }
        let source = self.lower.source()?;
        let native = skip::native();
        if !native && !Path::new("/dev/fuse").exists() {
            return Err("no /dev/fuse".to_owned());
        }
        let place = temp_dir();
        let mountpoint = place.path().join("mnt");
        std::fs::create_dir(&mountpoint).expect("mkdir mnt");
        let mnt = if native { source.path().to_owned() } else { mountpoint };
        let mut fixture =
            Fixture { plan: self.clone(), source, mnt, native, pid: None, _watchdog: None, place };
        if self.mounted {
            fixture.mount();
        }
        Ok(fixture)
    }
}

/// Runs a body on a fixture, or skips the test if the fixture cannot be set up.
pub fn perform(plan: Plan, body: impl FnOnce(&Fixture)) {
    if let Some(fixture) = plan.set_or_skip() {
        body(&fixture);
    }
}

/// A source directory with its mirror. Dropping it unmounts, and asserts that no mount and no process remains.
#[derive(Debug)]
pub struct Fixture {
    plan: Plan,
    source: Source,
    mnt: PathBuf,
    native: bool,
    pid: Option<u32>,
    _watchdog: Option<Watchdog>,
    place: TempDir,
}

impl Fixture {
    /// Returns the mount point; the source itself in a native run.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// Returns the source directory.
    pub fn src(&self) -> &Path {
        self.source.path()
    }

    /// Returns the path of a name in the mirror.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.mnt.join(name.as_ref())
    }

    /// Returns the path of a name in the source.
    pub fn lower(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.src().join(name.as_ref())
    }

    /// Returns a directory next to both, for other files of a test.
    pub fn aside(&self) -> &Path {
        self.place.path()
    }

    /// Reports whether there is a mount; false in a native run.
    pub fn mounted(&self) -> bool {
        !self.native
    }

    /// Returns the lower file system.
    pub fn on(&self) -> Lower {
        self.plan.lower
    }

    /// Returns the pid of the serving daemon.
    ///
    /// # Panics
    /// In a native run, which has none.
    pub fn pid(&self) -> u32 {
        self.pid.expect("a mounted fixture")
    }

    /// Returns the daemon that serves now, be it the first or a successor; `None` between two.
    pub fn server(&self) -> Option<u32> {
        mounts::daemon(&self.mnt, "mirror")
    }

    /// Returns the command that mounts this fixture.
    pub fn mount_command(&self) -> Command {
        let mut command = match self.plan.files {
            Some(limit) => {
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={limit}:{limit}")).arg(binary::shunt());
                command
            }
            None => Command::new(binary::shunt()),
        };
        command.arg("mirror").arg(self.src()).arg(&self.mnt).arg("--daemon").args(&self.plan.args);
        command
    }

    /// Mounts with `--daemon`, which returns when the mirror serves.
    ///
    /// # Panics
    /// If it does not start.
    pub fn mount(&mut self) {
        if self.native {
            return;
        }
        let switch = rings::keep();
        run_for(20, &mut self.mount_command()).ok();
        drop(switch);
        assert_eq!(mounts::count(&self.mnt), 1, "shunt mirror --daemon returned, but nothing is mounted");
        let pid = self.entry().and_then(|e| e["pid"].as_u64()).expect("the mount is in `shunt list --json`");
        self.pid = Some(u32::try_from(pid).expect("a pid"));
        // Unless the plan names a transport.
        if rings::over_rings() && !self.plan.args.iter().any(|arg| arg == "--transport") {
            let entry = self.entry().expect("listed");
            assert_eq!(
                entry["transport"], "uring",
                "SHUNT_TRANSPORT=uring, but {}",
                entry["transport_reason"]
            );
        }
        self._watchdog = Some(Watchdog::new(self.pid(), self.mnt.clone(), self.plan.patience));
    }

    /// Returns the entry of this mount in `shunt list --json`.
    pub fn entry(&self) -> Option<Value> {
        let list = run_for(20, &mut binary::command(&["list", "--json"])).ok();
        let list: Value = serde_json::from_str(&list).expect("list --json prints JSON");
        let mnt = self.mnt.to_str();
        list.as_array().expect("an array").iter().find(|e| e["mountpoint"].as_str() == mnt).cloned()
    }

    /// Reports whether the daemon uses passthrough.
    pub fn passthrough(&self) -> bool {
        self.entry().is_some_and(|e| match &e["passthrough"] {
            Value::Bool(on) => *on,
            Value::String(s) => s == "on" || s.starts_with("on "),
            other => other["enabled"].as_bool().unwrap_or(false),
        })
    }

    /// Returns the output of `shunt stat --json`.
    pub fn stat(&self) -> Value {
        let text = run_for(20, binary::command(&["stat"]).arg(&self.mnt).arg("--json")).ok();
        serde_json::from_str(&text).expect("stat --json prints JSON")
    }

    /// Returns the number of requests of this kind that the daemon has served.
    pub fn requests(&self, name: &str) -> u64 {
        self.stat()["requests"][name]["count"].as_u64().unwrap_or(0)
    }

    /// Runs `shunt umount`, once.
    pub fn try_umount(&self) -> Ran {
        run_for(20, binary::command(&["umount"]).arg(&self.mnt))
    }

    /// Runs `shunt umount`, [patiently].
    pub fn umount(&self) -> Ran {
        patiently(|| self.try_umount())
    }

    /// Unmounts and mounts again: no kernel cache survives.
    ///
    /// # Panics
    /// If either fails.
    pub fn remount(&mut self) {
        if self.native {
            return;
        }
        self.take_down().expect("unmount");
        self.mount();
    }

    /// Waits until neither a mount nor a process of this fixture is left. Returns false after the time limit.
    pub fn ends_within(&self, limit: Duration) -> bool {
        within(limit, || {
            mounts::count(&self.mnt) == 0
                && self.pid.is_none_or(|pid| !mounts::alive(pid))
                && self.server().is_none()
        })
    }

    fn take_down(&mut self) -> Result<(), String> {
        let umount = (mounts::count(&self.mnt) > 0).then(|| self.umount());
        let unmounted = umount.as_ref().is_none_or(Ran::success) || mounts::count(&self.mnt) == 0;
        let output = umount.map_or_else(String::new, |ran| ran.err);
        let ended = unmounted && self.ends_within(Duration::from_secs(2));
        self._watchdog = None;
        if ended {
            self.pid = None;
            return Ok(());
        }
        let state =
            format!("mounts {}, daemon alive {:?}", mounts::count(&self.mnt), self.pid.map(mounts::alive));
        if let Some(pid) = self.pid.take() {
            mounts::end(self.server().unwrap_or(pid));
        }
        mounts::detach(&self.mnt);
        Err(format!("did not go away (unmounted {unmounted}, {state}): {output}"))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if self.native || (self.pid.is_none() && mounts::count(&self.mnt) == 0) {
            return;
        }
        if let Err(why) = self.take_down() {
            assert!(std::thread::panicking(), "{why}");
        }
    }
}

/// Kills a daemon whose test takes too long: hung calls in the mount then return with an error, and the test fails.
#[derive(Debug)]
struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    fn new(pid: u32, mnt: PathBuf, patience: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < shunt_test_support::pace::limit(patience) {
                if stopped.recv_timeout(patience) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
            eprintln!("{}: no end after {:?}, killing the daemon {pid}", mnt.display(), start.elapsed());
            mounts::end(mounts::daemon(&mnt, "mirror").unwrap_or(pid));
            std::thread::sleep(Duration::from_secs(2));
            mounts::detach(&mnt);
        });
        Self { _stop: stop }
    }
}
