//! Lower file systems that hold the sources of mirrors.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use shunt_test_support::loops;

/// The file system below a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lower {
    /// tmpfs.
    Tmpfs,
    /// ext4: the machine's own, or one on a loop device.
    Ext4,
    /// XFS on a loop device, mirrored from its root.
    Xfs,
    /// btrfs on a loop device, mirrored from its root.
    Btrfs,
}

/// A fresh directory on a [`Lower`], with mode 0755.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    image: bool,
    _dir: TempDir,
}

const TMPFS_MAGIC: u64 = 0x0102_1994;
const EXT4_MAGIC: u64 = 0xEF53;

impl Lower {
    /// Creates a source, or returns why that is not possible.
    pub fn source(self) -> Result<Source, String> {
        match self {
            Self::Tmpfs => {
                let base = first(&["/dev/shm", "/run", "/tmp"], TMPFS_MAGIC)
                    .ok_or("no tmpfs in /dev/shm, /run or /tmp")?;
                Ok(Source::plain(&base))
            }
            Self::Ext4 => {
                let given = std::env::var("SHUNT_TEST_EXT4").unwrap_or_default();
                match first(&[&given, "/var/tmp", "/tmp"], EXT4_MAGIC) {
                    Some(base) => Ok(Source::plain(&base)),
                    None => Source::image("ext4", &["-qF"], 512),
                }
            }
            // Minimum size of each file system.
            Self::Xfs => Source::image("xfs", &["-q"], 300),
            Self::Btrfs => Source::image("btrfs", &["-q"], 128),
        }
    }
}

impl Source {
    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn plain(base: &Path) -> Self {
        let dir = temp_dir_in(base);
        Self { path: dir.path().to_owned(), image: false, _dir: dir }
    }

    /// Creates a file system of `size` MiB on a loop device.
    fn image(kind: &str, quietly: &[&str], size: u64) -> Result<Self, String> {
        let dir = temp_dir_in(&std::env::temp_dir());
        let (image, path) = (dir.path().join("image"), dir.path().join(kind));
        std::fs::create_dir(&path).map_err(|e| e.to_string())?;
        let file = std::fs::File::create(&image).map_err(|e| e.to_string())?;
        file.set_len(size << 20).map_err(|e| e.to_string())?;
        let (mut make, mut mount) = (Command::new(format!("mkfs.{kind}")), Command::new("mount"));
        for command in
            [make.args(quietly).arg(&image), mount.args(["-oloop", "-t", kind]).args([&image, &path])]
        {
            let ran = loops::set_up(command);
            if !ran.success() {
                return Err(format!("no {kind}: {}: {}", ran.what, ran.err.trim()));
            }
        }
        Ok(Self { path, image: true, _dir: dir })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.image {
            crate::mounts::detach(&self.path);
        }
        // Flags left by a failed test would prevent the removal of the directory.
        let _ = Command::new("chattr").args(["-R", "-i", "-a"]).arg(&self.path).output();
    }
}

/// Creates a temporary directory that other users may enter, removed on drop.
pub fn temp_dir() -> TempDir {
    temp_dir_in(&std::env::temp_dir())
}

fn temp_dir_in(base: &Path) -> TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new()
        .prefix("shunt-test-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in(base)
        .unwrap_or_else(|e| panic!("a directory in {}: {e}", base.display()))
}

fn first(candidates: &[&str], magic: u64) -> Option<PathBuf> {
    candidates
        .iter()
        .filter(|p| !p.is_empty())
        .find(|p| rustix::fs::statfs(**p).is_ok_and(|s| s.f_type as u64 == magic))
        .map(PathBuf::from)
}
