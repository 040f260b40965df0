//! Which files the programs are that rules name.
//!
//! A program is told by its inode, not by its path, which a caller can make mean something else in a mount namespace of
//! its own. The paths are resolved when the rules are read, and again from time to time ([`Programs::refresh`]), never
//! by a thread that serves: they may lead through the mount.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use shunt_policy::Policy;

/// Device and inode.
pub(super) type Identity = (u64, u64);

#[derive(Default)]
pub(super) struct Programs(RwLock<BTreeMap<PathBuf, Option<Identity>>>);

impl Programs {
    /// Resolves all paths of a policy.
    pub(super) fn refresh(&self, policy: &Policy) {
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let resolved: BTreeMap<_, _> =
            policy.programs().map(|path| (path.to_owned(), identity(path))).collect();
        if *self.0.read() != resolved {
            *self.0.write() = resolved;
        }
    }

    /// Whether the program of a path is this file.
    pub(super) fn is(&self, path: &Path, running: Identity) -> bool {
        self.0.read().get(path).copied().flatten() == Some(running)
    }
}
