//! The file of a policy: checks who may write it, and whether it is complete.
//!
//! A file that others can write is refused: they would decide what they may see. A file that is being written is not used yet:
//! cut between two rules it is valid, and allows what the missing rules forbid.

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;
use shunt_change_stamp::ChangeStamp;
use shunt_policyfs::Leases;

/// Limit of the size of a policy.
const MAX_POLICY_BYTES: u64 = 8 << 20;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// The result of looking for writers of a file.
pub enum Writers {
    /// The text; no program wrote to the file while it was read.
    None(String),
    /// A program has the file open for writing.
    Some,
    /// The text; the file system, or a lack of privileges, does not allow a read lease.
    Unknown(String),
}

/// An open policy file.
pub struct PolicyFile {
    file: File,
    metadata: fs::Metadata,
    path: String,
}

impl PolicyFile {
    /// Opens the file.
    ///
    /// # Errors
    /// The file cannot be opened; one line.
    pub fn open(path: &Path) -> Result<Self, String> {
        let display = path.display().to_string();
        let failed = |error: std::io::Error| format!("cannot read the policy {display}: {error}");
        // O_NONBLOCK: opening a FIFO would block.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        Ok(Self { file, metadata, path: display })
    }

    pub fn stamp(&self) -> ChangeStamp {
        ChangeStamp::from(&self.metadata)
    }

    /// Refuses a file that a user other than root and the daemon's user can change or replace.
    ///
    /// # Errors
    /// The file is refused; one line.
    pub fn protected(self, path: &Path) -> Result<Self, String> {
        let me = rustix::process::geteuid().as_raw();
        let is_trusted = |metadata: &fs::Metadata| [0, me].contains(&metadata.uid());
        let (name, file) = (&self.path, &self.metadata);
        if !is_trusted(file) {
            return Err(format!(
                "{name}: the policy belongs to user {}; make root or the user of the daemon its owner",
                file.uid()
            ));
        }
        if file.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(format!(
                "{name}: others can write the policy (mode {:04o}); run chmod go-w on it",
                file.mode() & 0o7777
            ));
        }
        let dir = path.parent().unwrap_or(Path::new("/"));
        let metadata =
            fs::metadata(dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
        // In a sticky directory only the owner of a file, or of the directory, can replace it.
        let is_shared = metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0;
        if is_shared || !is_trusted(&metadata) {
            return Err(format!(
                "{name}: others can replace the policy, because they can write to {}; run chmod go-w on it, or move the file",
                dir.display()
            ));
        }
        Ok(self)
    }

    /// Reads the file, whether or not it is being written.
    ///
    /// # Errors
    /// Not a readable, regular file in UTF-8 below the limit; one line.
    pub fn read(&self) -> Result<String, String> {
        let name = &self.path;
        if !self.metadata.is_file() {
            return Err(format!("cannot read the policy {name}: not a regular file"));
        }
        let mut bytes = Vec::new();
        let read = (&self.file).take(MAX_POLICY_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read the policy {name}: {error}"))?;
        if bytes.len() as u64 > MAX_POLICY_BYTES {
            return Err(format!("{name}: the policy is larger than {MAX_POLICY_BYTES} bytes; split it"));
        }
        String::from_utf8(bytes).map_err(|_| format!("cannot read the policy {name}: not valid UTF-8"))
    }

    /// Reads the file under a read lease, which a writer would break.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn read_undisturbed(&self) -> Result<Writers, String> {
        let leases = Leases::default();
        let lease = match leases.try_take(&self.file) {
            Ok(lease) => lease,
            Err(Errno::AGAIN) => return Ok(Writers::Some),
            Err(_) => return Ok(Writers::Unknown(self.read()?)),
        };
        let text = self.read()?;
        let is_same = self.file.metadata().is_ok_and(|now| ChangeStamp::from(&now) == self.stamp());
        Ok(if lease.is_intact() && is_same { Writers::None(text) } else { Writers::Some })
    }
}
