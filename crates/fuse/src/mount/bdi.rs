//! Writeback throttling and read-ahead of a mount, `/sys/class/bdi/MAJOR:MINOR`.
//!
//! A FUSE mount starts with `max_ratio` 1 and `strict_limit` 1: writers to its write-back cache may dirty one percent of memory
//! and are throttled hard beyond that. Only root may change the values.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::{fs, io};

use super::{Dev, MountPoint};

/// Values to set; `None` keeps the kernel's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BdiTuning {
    /// The share of the dirty-page limit that this mount may use, 0 to 100 percent.
    pub max_ratio: Option<u32>,
    /// Enforces the share even while little memory is dirty.
    pub strict_limit: Option<bool>,
    /// The read-ahead window in KiB.
    pub read_ahead_kb: Option<u32>,
}

/// The result of applying a [`BdiTuning`].
#[derive(Debug, Default)]
pub struct BdiReport {
    /// The files written, with their values.
    pub set: Vec<(&'static str, u32)>,
    /// The files that could not be written, with the requested values and the errors.
    pub refused: Vec<(&'static str, u32, io::Error)>,
}

impl BdiTuning {
    /// Sets what can be set; a refusal is reported and does not stop the others.
    pub fn apply(&self, mount: &MountPoint) -> BdiReport {
        let dir = directory(mount.dev());
        let mut report = BdiReport::default();
        let settings = [
            ("max_ratio", self.max_ratio),
            ("strict_limit", self.strict_limit.map(u32::from)),
            ("read_ahead_kb", self.read_ahead_kb),
        ];
        for (file, value) in settings {
            let Some(value) = value else { continue };
            match fs::write(dir.join(file), value.to_string()) {
                Ok(()) => report.set.push((file, value)),
                Err(error) => report.refused.push((file, value, error)),
            }
        }
        report
    }
}

/// The limit of dirty data in the write-back cache of a mount (Linux 6.2).
///
/// It holds its files open, because a sandboxed daemon cannot open them any more.
#[derive(Debug)]
pub struct DirtyLimit {
    max_bytes: File,
    /// Absent where the limit may not be changed: only root may.
    control: Option<Control>,
}

#[derive(Debug)]
struct Control {
    max_ratio: File,
    strict_limit: File,
}

impl DirtyLimit {
    /// Opens the limit of a mount, to change it if that is permitted.
    ///
    /// # Errors
    /// NotFound before Linux 6.2, or where sysfs is not mounted.
    pub fn open(mount: &MountPoint) -> io::Result<Self> {
        let dir = directory(mount.dev());
        let writable = |file: &str| File::options().read(true).write(true).open(dir.join(file));
        let files =
            || io::Result::Ok((writable("max_bytes")?, writable("max_ratio")?, writable("strict_limit")?));
        match files() {
            Ok((max_bytes, max_ratio, strict_limit)) => {
                Ok(Self { max_bytes, control: Some(Control { max_ratio, strict_limit }) })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
            Err(_) => Ok(Self { max_bytes: File::open(dir.join("max_bytes"))?, control: None }),
        }
    }

    /// Reports whether the limit can be changed.
    pub const fn can_change(&self) -> bool {
        self.control.is_some()
    }

    /// Sets the limit, or lifts it: then the mount may use the machine's limit. The kernel enforces a limit that is set even
    /// while little memory is dirty, and rounds it to a millionth of the machine's limit.
    ///
    /// # Errors
    /// InvalidInput for more bytes than the machine can have dirty; PermissionDenied where it cannot be changed.
    pub fn set(&self, bytes: Option<u64>) -> io::Result<()> {
        let control = self.control.as_ref().ok_or(io::ErrorKind::PermissionDenied)?;
        match bytes {
            Some(bytes) => put(&self.max_bytes, bytes)?,
            None => put(&control.max_ratio, 100)?,
        }
        put(&control.strict_limit, bytes.is_some().into())
    }

    /// Returns the limit in bytes.
    ///
    /// # Errors
    /// Errors of reading it; InvalidData where it is not a number.
    pub fn bytes(&self) -> io::Result<u64> {
        let mut text = [0; 32];
        let length = self.max_bytes.read_at(&mut text, 0)?;
        let text = String::from_utf8_lossy(&text[..length]);
        text.trim().parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

fn put(file: &File, value: u64) -> io::Result<()> {
    file.write_at(value.to_string().as_bytes(), 0).map(drop)
}

/// Returns the directory in sysfs of a FUSE mount with this device number. The plain name belongs to the disk itself where there is
/// one; its FUSE mount has a suffix.
pub fn directory(dev: Dev) -> PathBuf {
    let suffix = if dev.major == 0 { "" } else { "-fuseblk" };
    PathBuf::from(format!("/sys/class/bdi/{dev}{suffix}"))
}
