//! Images mounted by the kernel.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_ext4::{FileDevice, Filesystem};
use shunt_test_support::cmd::within;
use shunt_test_support::loops;
use tempfile::TempDir;

/// Runs a program; returns its error output on failure.
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
    /// Creates and mounts an image. `None` if the kernel or mkfs does not support it, which is a failure in CI unless `optional`.
    pub fn new(mkfs: &[&str], mebibytes: u64, optional: bool) -> Option<Self> {
        match Self::make(mkfs, mebibytes).and_then(Self::mount) {
            Ok(image) => Some(image),
            Err(reason) => {
                assert!(optional || std::env::var_os("CI").is_none(), "{mkfs:?}: {reason}");
                eprintln!("skipped {mkfs:?}: {reason}");
                None
            }
        }
    }

    /// Creates an image without mounting it.
    pub fn make(mkfs: &[&str], mebibytes: u64) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        fs::create_dir(dir.path().join("mnt")).map_err(|error| error.to_string())?;
        let image = Self { dir, mounted: false };
        let file = File::create(image.path()).map_err(|error| error.to_string())?;
        file.set_len(mebibytes << 20).map_err(|error| error.to_string())?;
        let path = image.path();
        let path = path.to_str().expect("the path is UTF-8");
        run("mkfs.ext4", &[mkfs, &["-q", "-F", path]].concat())?;
        Ok(image)
    }

    /// Copies the current image, without mounting the copy.
    pub fn copy(&self) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        fs::copy(self.path(), dir.path().join("image")).unwrap();
        Self { dir, mounted: false }
    }

    /// Fails if e2fsck finds an error.
    pub fn check(&self) {
        let path = self.path();
        let output = Command::new("e2fsck").args(["-fn"]).arg(&path).output().unwrap();
        let output_text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output_text}{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn mount(self) -> Result<Self, String> {
        self.mount_with("user_xattr,acl")
    }

    /// Mounts the image with options.
    pub fn mount_with(mut self, options: &str) -> Result<Self, String> {
        let (image, mnt) = (self.path(), self.mnt());
        let options = format!("loop,{options}");
        let ran =
            loops::set_up(Command::new("mount").args(["-t", "ext4", "-o", &options]).args([image, mnt]));
        self.mounted = ran.success();
        if self.mounted { Ok(self) } else { Err(ran.err) }
    }

    pub fn unmount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            // A process that another test is about to start may briefly inherit files of this one.
            let deadline = Instant::now() + Duration::from_secs(10);
            while let Err(error) = run("umount", &[self.mnt().to_str().unwrap()]) {
                assert!(error.contains("busy") && Instant::now() < deadline, "{error}");
                std::thread::sleep(Duration::from_millis(50));
            }
            // The mount briefly stays in mount namespaces that others were just creating.
            let unmounted = within(Duration::from_secs(60), || !loops::is_over(&self.path()));
            assert!(unmounted, "{} is still mounted", self.path().display());
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
