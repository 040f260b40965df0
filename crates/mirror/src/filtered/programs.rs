//! Which files the programs are that rules name.
//!
//! A program is told by its inode, not by its path, which a caller can make mean something else in a mount namespace of
//! its own. The paths are resolved when the rules are read, and again from time to time ([`Programs::refresh`]), never
//! by a thread that serves: they may lead through the mount.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::RwLock;
use shunt_policy::Policy;

/// Device and inode.
pub(super) type Identity = (u64, u64);

type Resolved = BTreeMap<PathBuf, Option<Identity>>;

#[derive(Default)]
pub(super) struct Programs(RwLock<Resolved>);

/// How long paths may take to be resolved while nobody serves the mount.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);

fn resolve(policy: &Policy) -> Resolved {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    policy.programs().map(|path| (path.to_owned(), identity(path))).collect()
}

impl Programs {
    /// Resolves all paths of a policy.
    pub(super) fn refresh(&self, policy: &Policy) {
        let resolved = resolve(policy);
        if *self.0.read() != resolved {
            *self.0.write() = resolved;
        }
    }

    /// As [`refresh`](Self::refresh), by a thread that may be held up as long as nobody serves the mount, which is not
    /// waited for long: what is not resolved yet is held against the caller.
    pub(super) fn refresh_soon(&self, policy: &Policy) {
        if policy.programs().next().is_none() {
            return;
        }
        let (done, resolved) = std::sync::mpsc::channel();
        let policy = policy.clone();
        std::thread::spawn(move || done.send(resolve(&policy)));
        if let Ok(resolved) = resolved.recv_timeout(RESPONSE_TIMEOUT) {
            *self.0.write() = resolved;
        }
    }

    /// Whether the program of a path is this file.
    pub(super) fn is(&self, path: &Path, running: Identity) -> bool {
        self.0.read().get(path).copied().flatten() == Some(running)
    }
}
