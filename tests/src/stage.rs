//! A source, a mirror of it, and the certainty that nothing of it stays behind.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::cmd::{Ran, patiently, run_for, within};
use crate::lower::{Lower, Source, temp_dir};
use crate::{binary, mounts, rings, skip};

/// How a stage is to be set.
#[derive(Clone, Debug)]
pub struct Plan {
    lower: Lower,
    args: Vec<String>,
    files: Option<u64>,
    patience: Duration,
    mounted: bool,
}

impl Plan {
    /// On tmpfs, data passed through.
    pub fn tmpfs() -> Self {
        Self {
            lower: Lower::Tmpfs,
            args: Vec::new(),
            files: None,
            patience: Duration::from_secs(60),
            mounted: true,
        }
    }

    /// On ext4, data passed through.
    pub fn ext4() -> Self {
        Self { lower: Lower::Ext4, ..Self::tmpfs() }
    }

    /// On the whole of an XFS, data passed through.
    pub fn xfs() -> Self {
        Self { lower: Lower::Xfs, ..Self::tmpfs() }
    }

    /// On the whole of a btrfs, data passed through.
    pub fn btrfs() -> Self {
        Self { lower: Lower::Btrfs, ..Self::tmpfs() }
    }

    /// On tmpfs, data through the daemon.
    pub fn daemon() -> Self {
        Self::tmpfs().args(&["--passthrough", "off"])
    }

    /// On tmpfs, data through the daemon, files never opened.
    pub fn unopened() -> Self {
        Self::daemon().args(&["--cache", "exclusive"])
    }

    /// More options for `shunt mirror`.
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|a| (*a).to_owned()));
        self
    }

    /// The daemon may have at most this many files open (`ulimit -n`).
    pub fn open_files(mut self, limit: u64) -> Self {
        self.files = Some(limit);
        self
    }

    /// The test may take this long before the mount is torn down under it (60 seconds unless told).
    pub fn patience(mut self, seconds: u64) -> Self {
        self.patience = Duration::from_secs(seconds);
        self
    }

    /// Makes the two directories, and mounts nothing yet.
    pub fn unmounted(mut self) -> Self {
        self.mounted = false;
        self
    }

    /// As [`Plan::set`]; where that cannot be, the test is skipped.
    pub fn set_or_skip(&self) -> Option<Stage> {
        self.set().map_err(|reason| skip::skip(&reason)).ok()
    }

    /// Sets the stage, or says why that cannot be.
    ///
    /// # Panics
    /// When the mirror does not come up.
    pub fn set(&self) -> Result<Stage, String> {
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
        let mut stage = Stage { plan: self.clone(), source, mnt, native, pid: None, _watchdog: None, place };
        if self.mounted {
            stage.mount();
        }
        Ok(stage)
    }
}

/// Whether this run of the tests is to go over io_uring: `SHUNT_TRANSPORT=uring`, which every `shunt mirror` follows.
pub fn over_rings() -> bool {
    std::env::var("SHUNT_TRANSPORT").as_deref() == Ok("uring")
}

/// Runs a body on a stage, or skips when the stage cannot be had.
pub fn perform(plan: Plan, body: impl FnOnce(&Stage)) {
    if let Some(stage) = plan.set_or_skip() {
        body(&stage);
    }
}

/// A source directory with its mirror. Dropping it unmounts, and asserts that no mount and no process is left.
#[derive(Debug)]
pub struct Stage {
    plan: Plan,
    source: Source,
    mnt: PathBuf,
    native: bool,
    pid: Option<u32>,
    _watchdog: Option<Watchdog>,
    place: TempDir,
}

impl Stage {
    /// The mount point; the source itself in a native run.
    pub fn mnt(&self) -> &Path {
        &self.mnt
    }

    /// The source directory.
    pub fn src(&self) -> &Path {
        self.source.path()
    }

    /// A name in the mirror.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.mnt.join(name.as_ref())
    }

    /// The same name in the source.
    pub fn lower(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.src().join(name.as_ref())
    }

    /// A directory beside both, for what a test needs besides.
    pub fn aside(&self) -> &Path {
        self.place.path()
    }

    /// False in a native run.
    pub fn mounted(&self) -> bool {
        !self.native
    }

    /// The file system below.
    pub fn on(&self) -> Lower {
        self.plan.lower
    }

    /// The serving daemon.
    ///
    /// # Panics
    /// In a native run, where there is none.
    pub fn pid(&self) -> u32 {
        self.pid.expect("a mounted stage")
    }

    /// The daemon that serves now, be it the first or one that took over; none between two.
    pub fn server(&self) -> Option<u32> {
        server(&self.mnt)
    }

    /// The command that mounts this stage.
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
    /// When it does not come up.
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
        // A plan that names a transport has it.
        if over_rings() && !self.plan.args.iter().any(|arg| arg == "--transport") {
            let entry = self.entry().expect("listed");
            assert_eq!(
                entry["transport"], "uring",
                "SHUNT_TRANSPORT=uring, but {}",
                entry["transport_reason"]
            );
        }
        self._watchdog = Some(Watchdog::new(self.pid(), self.mnt.clone(), self.plan.patience));
    }

    /// What `shunt list --json` says of this mount.
    pub fn entry(&self) -> Option<Value> {
        let list = run_for(20, &mut binary::command(&["list", "--json"])).ok();
        let list: Value = serde_json::from_str(&list).expect("list --json prints JSON");
        let mnt = self.mnt.to_str();
        list.as_array().expect("an array").iter().find(|e| e["mountpoint"].as_str() == mnt).cloned()
    }

    /// True when the daemon says that file data is passed through.
    pub fn passthrough(&self) -> bool {
        self.entry().is_some_and(|e| match &e["passthrough"] {
            Value::Bool(on) => *on,
            Value::String(s) => s == "on" || s.starts_with("on "),
            other => other["enabled"].as_bool().unwrap_or(false),
        })
    }

    /// What `shunt stat --json` says.
    pub fn stat(&self) -> Value {
        let text = run_for(20, binary::command(&["stat"]).arg(&self.mnt).arg("--json")).ok();
        serde_json::from_str(&text).expect("stat --json prints JSON")
    }

    /// How many requests of this kind the daemon has had.
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

    /// Unmounts and mounts again: nothing the kernel has cached survives.
    ///
    /// # Panics
    /// When either fails.
    pub fn remount(&mut self) {
        if self.native {
            return;
        }
        self.take_down().expect("unmount");
        self.mount();
    }

    /// True when neither a mount nor a process of this stage is left, within the time.
    pub fn gone(&self, limit: Duration) -> bool {
        within(limit, || {
            mounts::count(&self.mnt) == 0
                && self.pid.is_none_or(|pid| !mounts::alive(pid))
                && self.server().is_none()
        })
    }

    fn take_down(&mut self) -> Result<(), String> {
        let umount = (mounts::count(&self.mnt) > 0).then(|| self.umount());
        let unmounted = umount.as_ref().is_none_or(Ran::success) || mounts::count(&self.mnt) == 0;
        let said = umount.map_or_else(String::new, |ran| ran.err);
        let gone = unmounted && self.gone(Duration::from_secs(2));
        self._watchdog = None;
        if gone {
            self.pid = None;
            return Ok(());
        }
        let state =
            format!("mounts {}, daemon alive {:?}", mounts::count(&self.mnt), self.pid.map(mounts::alive));
        if let Some(pid) = self.pid.take() {
            mounts::end(self.server().unwrap_or(pid));
        }
        mounts::detach(&self.mnt);
        Err(format!("did not go away (unmounted {unmounted}, {state}): {said}"))
    }
}

/// The process whose command line names this mount.
fn server(mnt: &Path) -> Option<u32> {
    mounts::processes_naming(mnt).into_iter().find(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).nth(1) == Some(b"mirror")
    })
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.native || (self.pid.is_none() && mounts::count(&self.mnt) == 0) {
            return;
        }
        if let Err(why) = self.take_down() {
            assert!(std::thread::panicking(), "{why}");
        }
    }
}

/// Kills a daemon whose test takes too long: what hangs in the mount then returns with an error, and is a failure.
#[derive(Debug)]
struct Watchdog {
    _stop: mpsc::Sender<()>,
}

impl Watchdog {
    fn new(pid: u32, mnt: PathBuf, patience: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            let start = Instant::now();
            while start.elapsed() < crate::pace::limit(patience) {
                if stopped.recv_timeout(patience) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
            eprintln!("{}: no end after {:?}, killing the daemon {pid}", mnt.display(), start.elapsed());
            mounts::end(server(&mnt).unwrap_or(pid));
            std::thread::sleep(Duration::from_secs(2));
            mounts::detach(&mnt);
        });
        Self { _stop: stop }
    }
}
