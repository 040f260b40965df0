//! Volumes on real mounts.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::{Ran, patiently, run_for, within};
use tempfile::TempDir;

use crate::{binary, mounts};

/// A volume with all its files, in its own directory.
#[derive(Debug)]
pub struct Volume {
    dir: TempDir,
}

impl Default for Volume {
    fn default() -> Self {
        Self::new()
    }
}

impl Volume {
    /// Creates a volume.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn new() -> Self {
        let dir = crate::lower_fs::temp_dir();
        std::fs::create_dir(dir.path().join("mnt")).expect("mkdir");
        let mut create = binary::command(&["volume", "create", "test"]);
        run_for(20, create.env("XDG_DATA_HOME", dir.path())).ok();
        Self { dir }
    }

    /// Returns a directory for other files of a test.
    pub fn aside(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the cache directory of its first node.
    pub fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    /// Returns the command that mounts it.
    pub fn mount_command(&self, args: &[&str]) -> Command {
        let mut command = binary::command(&["volume", "mount", "--daemon", "--node", "here", "--cache"]);
        command.arg(self.cache()).args(args).arg("test").arg(self.dir.path().join("mnt"));
        command.env("XDG_DATA_HOME", self.dir.path());
        command
    }

    /// Mounts it as another node with its own cache.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount_as(&self, node: &str) -> Mount {
        self.mount_as_with(node, &[])
    }

    /// Like [`mount_as`](Self::mount_as), with more arguments.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount_as_with(&self, node: &str, args: &[&str]) -> Mount {
        let at = self.dir.path().join(format!("mnt-{node}"));
        std::fs::create_dir_all(&at).expect("mkdir");
        let mut command = binary::command(&["volume", "mount", "--daemon", "--node", node, "--cache"]);
        command.arg(self.dir.path().join(format!("cache-{node}"))).args(args).arg("test").arg(&at);
        run_for(20, command.env("XDG_DATA_HOME", self.dir.path())).ok();
        Mount { at }
    }

    /// Mounts the volume `shared` of a database, as [`mount_as`](Self::mount_as) does for this one.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount_shared(&self, node: &str, meta: &str) -> Mount {
        let at = self.dir.path().join(format!("mnt-{node}"));
        std::fs::create_dir_all(&at).expect("mkdir");
        let mut command = binary::command(&["volume", "mount", "--daemon", "--node", node, "--meta", meta]);
        command.arg("--cache").arg(self.dir.path().join(format!("cache-{node}"))).arg("shared").arg(&at);
        run_for(20, &mut command).ok();
        Mount { at }
    }

    /// Mounts it as a node that has joined it, with this home directory.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount_from(&self, node: &str, home: &Path) -> Mount {
        let at = self.dir.path().join(format!("mnt-{node}"));
        std::fs::create_dir_all(&at).expect("mkdir");
        let mut command = binary::command(&["volume", "mount", "--daemon", "--cache"]);
        command.arg(self.dir.path().join(format!("cache-{node}"))).arg("test").arg(&at);
        run_for(20, command.env("HOME", home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME")).ok();
        Mount { at }
    }

    /// Mounts it.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount(&self, args: &[&str]) -> Mount {
        run_for(20, &mut self.mount_command(args)).ok();
        Mount { at: self.dir.path().join("mnt") }
    }
}

/// A mounted volume. Dropping it unmounts, and asserts that no mount and no process remains.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
}

impl Mount {
    /// Wraps a mount that a command made.
    pub fn of(at: &Path) -> Self {
        Self { at: at.to_owned() }
    }

    /// Returns the mount point.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Returns the output of `shunt stat --json`.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn stat(&self) -> serde_json::Value {
        let stat = run_for(20, binary::command(&["stat", "--json"]).arg(&self.at)).ok();
        serde_json::from_str(&stat).expect("JSON")
    }

    /// Returns the output of `shunt volume status --json`.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        Self::status_at(&self.at)
    }

    /// Returns the status of a mount that this test does not unmount.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn status_at(at: &Path) -> serde_json::Value {
        let output = run_for(20, binary::command(&["volume", "status", "--json"]).arg(at)).ok();
        serde_json::from_str(&output).expect("JSON")
    }

    /// Connects it to its store, or disconnects it.
    ///
    /// # Panics
    /// If the command fails.
    #[track_caller]
    pub fn set_online(&self, online: bool) {
        let word = if online { "online" } else { "offline" };
        run_for(20, binary::command(&["volume", word]).arg(&self.at)).ok();
    }

    /// Returns the pid of the daemon.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.stat()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
    }

    /// Runs `shunt umount`, [patiently].
    pub fn umount(&self) -> Ran {
        patiently(|| run_for(60, binary::command(&["umount"]).arg(&self.at)))
    }

    /// Kills the daemon, and waits until the mount is gone.
    ///
    /// # Panics
    /// If the mount stays.
    pub fn kill(self) {
        mounts::signal(self.pid(), rustix::process::Signal::KILL);
        assert!(within(Duration::from_secs(20), || mounts::count(&self.at) == 0), "the mount stays");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut output = String::new();
        let unmounted = within(Duration::from_secs(10), || {
            if mounts::count(&self.at) == 0 {
                return true;
            }
            let ran = self.umount();
            output = ran.err.clone();
            ran.success()
        });
        let ended =
            unmounted && within(Duration::from_secs(5), || mounts::processes_naming(&self.at).is_empty());
        if !ended {
            mounts::processes_naming(&self.at).into_iter().for_each(mounts::end);
            mounts::detach(&self.at);
            assert!(std::thread::panicking(), "{} did not go away: {output}", self.at.display());
        }
    }
}
