//! Scratch space for the source directories: a tmpfs that the harness mounts, or the disk under `--out`. Mounts that a killed run
//! left behind are removed at the next start.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};

/// A mounted tmpfs, unmounted on drop.
#[derive(Debug)]
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts a tmpfs without a limit on inodes, of at most `percent` of memory.
    ///
    /// # Errors
    /// Without root.
    pub fn mount(at: &Path, percent: u32) -> Result<Self> {
        fs::create_dir_all(at)?;
        let options = std::ffi::CString::new(format!("size={percent}%,nr_inodes=0,mode=755"))?;
        mount("shunt-bench", at, "tmpfs", MountFlags::NODEV, options.as_c_str())
            .with_context(|| format!("mount a tmpfs at {}", at.display()))?;
        let tmpfs = Self(at.to_owned());
        // Shared propagation: a mount made below it in a daemon's own mount namespace is visible here.
        mount_change(at, MountPropagationFlags::SHARED).context("share the tmpfs")?;
        Ok(tmpfs)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        if unmount(&self.0, UnmountFlags::empty()).is_err() {
            let _ = unmount(&self.0, UnmountFlags::DETACH);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Unmounts and removes everything that an earlier, killed run left below `out`.
pub fn clear_leftovers(out: &Path) {
    let mounts = crate::mounted::table();
    // The newest mount is last in the table, so they are unmounted in reverse order.
    for entry in mounts.iter().rev().filter(|entry| entry.at.starts_with(out)) {
        if let Some(connection) = entry.fuse_connection() {
            crate::mounted::abort(connection);
        }
        let _ = unmount(&entry.at, UnmountFlags::DETACH);
    }
    for name in ["tmpfs", "mnt", "disk"] {
        let _ = fs::remove_dir_all(out.join(name));
    }
}
