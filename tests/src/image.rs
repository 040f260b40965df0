//! Images of ext2, ext3 and ext4, mounted by the kernel and by `shunt` in turn or side by side.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shunt_test_support::cmd::{Ran, patiently, run_for, within};
use shunt_test_support::loops;
use tempfile::TempDir;

use crate::{binary, mounts};

/// A file that contains a file system.
#[derive(Debug)]
pub struct Image {
    dir: TempDir,
    file: PathBuf,
}

impl Image {
    /// Reserves a path for an image that does not exist yet.
    pub fn place() -> Self {
        let dir = crate::lower_fs::temp_dir();
        Self { file: dir.path().join("image"), dir }
    }

    /// An image at another path, such as a disk.
    pub fn of(file: PathBuf) -> Self {
        Self { dir: crate::lower_fs::temp_dir(), file }
    }

    /// Creates a file system, or returns why that is not possible.
    pub fn make(mkfs: &[&str], mebibytes: u64) -> Result<Self, String> {
        let image = Self::place();
        let file = File::create(image.path()).map_err(|error| error.to_string())?;
        file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
        let ran = run_for(60, Command::new("mkfs.ext4").args(["-q", "-F"]).args(mkfs).arg(image.path()));
        if ran.success() { Ok(image) } else { Err(ran.err) }
    }

    /// Returns the path of the image.
    pub fn path(&self) -> PathBuf {
        self.file.clone()
    }

    /// Returns a directory for files that belong to the image.
    pub fn aside(&self) -> &Path {
        self.dir.path()
    }

    /// Asserts that `e2fsck` finds nothing to repair, not even a journal to replay.
    ///
    /// # Panics
    /// With its output.
    #[track_caller]
    pub fn check(&self) {
        self.check_for(60);
    }

    /// Like [`check`](Self::check), with a time limit in seconds.
    ///
    /// # Panics
    /// With its output.
    #[track_caller]
    pub fn check_for(&self, seconds: u64) {
        run_for(seconds, Command::new("e2fsck").arg("-fn").arg(self.path())).ok();
    }

    fn mount_point(&self, name: &str) -> PathBuf {
        let at = self.dir.path().join(name);
        std::fs::create_dir_all(&at).expect("mkdir");
        at
    }

    /// Mounts it with the kernel, on a loop device.
    ///
    /// # Errors
    /// If the kernel cannot mount it.
    pub fn by_kernel(&self, options: &str) -> Result<Mount, String> {
        let at = self.mount_point("kernel");
        let options = format!("loop,user_xattr,acl,{options}");
        let mut mount = Command::new("mount");
        let ran = loops::set_up(mount.args(["-t", "ext4", "-o", &options]).arg(self.path()).arg(&at));
        if ran.success() { Ok(Mount { at, of_kernel: Some(self.path()) }) } else { Err(ran.err) }
    }

    /// Returns the mount that [`mount_command`](Self::mount_command) made.
    pub fn by_shunt_already(&self) -> Mount {
        Mount { at: self.mount_point("ours"), of_kernel: None }
    }

    /// Returns the command `shunt ext4 --daemon` for it.
    pub fn mount_command(&self, args: &[&str]) -> Command {
        let mut command = binary::command(&["ext4", "--daemon"]);
        command.args(args).arg(self.path()).arg(self.mount_point("ours"));
        command
    }

    /// Mounts it with `shunt`.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn by_shunt(&self, args: &[&str]) -> Mount {
        loops::while_busy(|| run_for(20, &mut self.mount_command(args))).ok();
        self.by_shunt_already()
    }
}

/// A mounted image. Dropping it unmounts, and asserts that no mount and no process remains.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    /// The image, if the kernel mounted it.
    of_kernel: Option<PathBuf>,
}

impl Mount {
    /// Returns the mount point.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Runs `shunt umount`, [patiently].
    pub fn umount(&self) -> Ran {
        patiently(|| run_for(60, binary::command(&["umount"]).arg(&self.at)))
    }

    /// Returns the output of `shunt stat`.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn stat(&self) -> serde_json::Value {
        let stat = run_for(20, binary::command(&["stat", "--json"]).arg(&self.at)).ok();
        serde_json::from_str(&stat).expect("JSON")
    }

    /// Returns the directory of the kernel's write-back limits of this mount.
    ///
    /// # Panics
    /// If the mount cannot be examined.
    pub fn bdi(&self) -> PathBuf {
        let dev = std::fs::metadata(&self.at).expect("a mount").dev();
        let dev = shunt_fuse::mount::Dev { major: libc::major(dev), minor: libc::minor(dev) };
        shunt_fuse::mount::bdi::directory(dev)
    }

    /// Returns the daemon that serves now, be it the first or a successor; `None` between two.
    pub fn server(&self) -> Option<u32> {
        mounts::daemon(&self.at, "ext4")
    }

    /// Returns the daemon's pid from `shunt stat`.
    ///
    /// # Panics
    /// If the daemon does not reply.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        self.stat()["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a pid")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut output = String::new();
        let unmounted = within(Duration::from_secs(10), || {
            if mounts::count(&self.at) == 0 {
                return true;
            }
            let ran = match self.of_kernel {
                Some(_) => run_for(60, Command::new("umount").arg(&self.at)),
                None => self.umount(),
            };
            output = ran.err.clone();
            ran.success()
        });
        // A mount namespace that another process is just creating keeps the mount for a moment, and its loop device with it,
        // which the next mount of this image would reuse.
        let ended = unmounted
            && match &self.of_kernel {
                Some(image) => within(Duration::from_secs(60), || !loops::is_over(image)),
                None => within(Duration::from_secs(5), || mounts::processes_naming(&self.at).is_empty()),
            };
        if !ended {
            mounts::processes_naming(&self.at).into_iter().for_each(mounts::end);
            mounts::detach(&self.at);
            assert!(std::thread::panicking(), "{} did not go away: {output}", self.at.display());
        }
    }
}
