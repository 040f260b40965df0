//! A memory limit for a daemon and its client: the page cache they fill counts against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A memory control group, removed on drop.
#[derive(Debug)]
pub struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes a group of at most `bytes`, with the first controller that works: version 2, else version 1.
    ///
    /// # Errors
    /// When the machine offers no memory controller, or without root.
    pub fn new(bytes: u64) -> Result<Self> {
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/memory"];
        for root in roots.map(Path::new) {
            let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
            let v2 = controllers.split_whitespace().any(|name| name == "memory");
            let v1 = root.join("memory.limit_in_bytes").exists();
            if !v1 && !v2 {
                continue;
            }
            if v2 {
                fs::write(root.join("cgroup.subtree_control"), "+memory")
                    .context("enable the memory controller in cgroup.subtree_control")?;
            }
            let group = Self(root.join("shunt-bench"));
            fs::create_dir_all(&group.0).context("create a control group")?;
            let limit = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
            fs::write(group.0.join(limit), bytes.to_string()).context("limit memory")?;
            return Ok(group);
        }
        bail!(
            "this machine has no memory controller for control groups; mount cgroup v2 or the v1 memory controller"
        )
    }

    /// Puts a process, with all its threads, under the limit.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn add(&self, pid: u32) -> Result<()> {
        fs::write(self.procs(), pid.to_string()).context("move into the control group")
    }

    /// A command whose process is under the limit from its start; the program to run is added as arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", "echo $$ > \"$0\"; exec \"$@\""]).arg(self.procs());
        command
    }

    /// The file that process ids are written to.
    fn procs(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A process that just ended may hold the group for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        crate::progress::say(format_args!("cannot remove control group {}: still in use", self.0.display()));
    }
}
