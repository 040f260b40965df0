//! Images that the kernel mounts.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_ext4::{FileDevice, Filesystem};
use tempfile::TempDir;

/// Runs a program to its end; what it complained of where it failed.
pub fn run(program: &str, args: &[&str]) -> Result<(), String> {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

/// A new image, mounted by the kernel until it is dropped.
pub struct Image {
    pub dir: TempDir,
    mounted: bool,
}

impl Image {
    /// `None` where the kernel or mkfs cannot have it; that is a failure in CI unless `optional`.
    pub fn new(mkfs: &[&str], mebibytes: u64, optional: bool) -> Option<Self> {
        let made = || {
            let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
            fs::create_dir(dir.path().join("mnt")).map_err(|error| error.to_string())?;
            let image = Self { dir, mounted: false };
            let file = File::create(image.path()).map_err(|error| error.to_string())?;
            file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
            let path = image.path();
            let path = path.to_str().expect("a path of ours");
            run("mkfs.ext4", &[mkfs, &["-q", "-F", path]].concat())?;
            image.mount()
        };
        match made() {
            Ok(image) => Some(image),
            Err(reason) => {
                assert!(optional || std::env::var_os("CI").is_none(), "{mkfs:?}: {reason}");
                eprintln!("skipped {mkfs:?}: {reason}");
                None
            }
        }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn mount(mut self) -> Result<Self, String> {
        let (image, mnt) = (self.path(), self.mnt());
        run("mount", &["-o", "loop,user_xattr,acl", image.to_str().unwrap(), mnt.to_str().unwrap()])?;
        self.mounted = true;
        Ok(self)
    }

    pub fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            // A process that another test is about to start may still hold files of this one for a moment.
            let patience = Instant::now() + Duration::from_secs(10);
            while let Err(error) = run("umount", &[self.mnt().to_str().unwrap()]) {
                assert!(error.contains("busy") && Instant::now() < patience, "{error}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    pub fn open(&self) -> Filesystem {
        let device = FileDevice::new(File::open(self.path()).unwrap(), true).unwrap();
        Filesystem::open(Arc::new(device)).unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
    }
}
