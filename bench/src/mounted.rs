//! A mounted peer: the daemon and its mount point, both removed on drop.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, unmount};

/// Time limit for a daemon to mount and for a busy mount to become free; the daemon's exit may take twice as long.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);

/// One line of the mount table.
#[derive(Debug)]
pub struct Entry {
    /// The mount point.
    pub at: PathBuf,
    device: String,
    kind: String,
}

impl Entry {
    /// The number of its directory in `/sys/fs/fuse/connections`.
    pub fn fuse_connection(&self) -> Option<u32> {
        let fuse = self.kind == "fuse" || self.kind.starts_with("fuse.");
        self.device.strip_prefix("0:").filter(|_| fuse)?.parse().ok()
    }
}

/// The mount table of this process, oldest first.
pub fn table() -> Vec<Entry> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let entry = |line: &str| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(2);
        let device = left.next()?.to_owned();
        let at = left.nth(1)?.replace("\\040", " ").into();
        Some(Entry { at, device, kind: right.split(' ').next()?.to_owned() })
    };
    text.lines().filter_map(entry).collect()
}

/// Aborts a connection: every request on it fails at once, so that nothing hangs on a dead daemon.
pub fn abort(connection: u32) {
    let control = PathBuf::from("/sys/fs/fuse/connections");
    if !control.join(connection.to_string()).exists() {
        let _ = rustix::mount::mount(
            "fusectl",
            &control,
            "fusectl",
            rustix::mount::MountFlags::empty(),
            None::<&std::ffi::CStr>,
        );
    }
    let _ = fs::write(control.join(connection.to_string()).join("abort"), "1");
}

/// A daemon that runs in the foreground and serves one mount point.
#[derive(Debug)]
pub struct Mounted {
    at: PathBuf,
    daemon: Child,
    connection: u32,
}

impl Mounted {
    /// Starts `command` and waits until its mount is in the mount table.
    ///
    /// # Errors
    /// When it cannot start, ends early (the message carries the last line of its log), or mounts nothing in time.
    pub fn start(command: &mut Command, at: &Path) -> Result<Self> {
        fs::create_dir_all(at)?;
        let log = at.with_extension("log");
        let file = fs::File::create(&log)?;
        // A process group of its own: Ctrl-C ends the workload first, then the guards unmount.
        let daemon = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0)
            .spawn()
            .context("start the daemon")?;
        let mut mounted = Self { at: at.to_owned(), daemon, connection: 0 };
        let start = Instant::now();
        loop {
            let entry = table().into_iter().rev().find(|entry| entry.at == at);
            if let Some(connection) = entry.and_then(|entry| entry.fuse_connection()) {
                mounted.connection = connection;
                fs::metadata(at).context("the mount does not respond")?;
                return Ok(mounted);
            }
            let ended = mounted.daemon.try_wait()?;
            if ended.is_some() || start.elapsed() > MOUNT_TIMEOUT {
                let output = fs::read_to_string(&log).unwrap_or_default();
                bail!("did not mount: {}", output.lines().last().unwrap_or("no output"));
            }
            crate::job::check()?;
            sleep(Duration::from_millis(2));
        }
    }

    /// The number of its directory in `/sys/fs/fuse/connections`.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Unmounts and waits until the daemon ends.
    ///
    /// # Errors
    /// When the mount stays busy or the daemon does not end by itself; both are then ended by force.
    pub fn end(mut self) -> Result<()> {
        self.stop()
    }

    fn stop(&mut self) -> Result<()> {
        let start = Instant::now();
        let mounted = |at: &Path| table().iter().any(|entry| entry.at == at);
        let mut forced = false;
        while mounted(&self.at) {
            if unmount(&self.at, UnmountFlags::empty()).is_ok() {
                continue;
            }
            if start.elapsed() > MOUNT_TIMEOUT || crate::job::interrupted() {
                forced = true;
                abort(self.connection);
                let _ = unmount(&self.at, UnmountFlags::DETACH);
            }
            sleep(Duration::from_millis(5));
        }
        while self.daemon.try_wait()?.is_none() {
            if start.elapsed() > MOUNT_TIMEOUT * 2 {
                forced = true;
                self.daemon.kill()?;
                self.daemon.wait()?;
                break;
            }
            sleep(Duration::from_millis(1));
        }
        let _ = fs::remove_dir(&self.at);
        let _ = fs::remove_file(self.at.with_extension("log"));
        if forced {
            bail!("{} did not unmount and was unmounted by force", self.at.display());
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            crate::progress::say(format_args!("cannot clean up: {error:#}"));
        }
    }
}
