//! Tests of the engine on a real directory, without a mount.

mod attributes;
mod concurrent_changes;
mod names;
mod permissions;
mod resource_limits;

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use tempfile::TempDir;

use super::credentials::privileged;
use super::listing::DirEntry;
use super::*;

const USER: Caller = Caller { uid: 1234, gid: 2345, group: None, pid: None };

/// A directory and an engine that shows it.
struct Shown {
    dir: TempDir,
    lower: Lower,
}

impl Shown {
    fn new() -> Self {
        Self::with(LowerOptions::default())
    }

    fn with(options: LowerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lower = Lower::open(LowerOptions { source: dir.path().into(), ..options }).unwrap();
        Self { dir, lower }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn look(&self, name: &CStr) -> Result<Found, Errno> {
        self.lower.lookup(NodeId::ROOT, component(name))
    }

    fn names(&self, id: NodeId) -> Vec<(Vec<u8>, u64)> {
        let mut names = Vec::new();
        self.lower
            .list(id, None, 0, |_, entry| {
                names.push((entry.name.to_bytes().to_vec(), entry.ino));
                Ok(true)
            })
            .unwrap();
        names
    }
}

fn component(name: &CStr) -> Component<'_> {
    Component::new(name).unwrap()
}

fn needs_root() -> bool {
    if !privileged() {
        eprintln!("skipped: needs root");
    }
    !privileged()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}
