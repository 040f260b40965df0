//! Identities of the programs that rules name.
//!
//! A program is identified by its inode, not by its path, which a caller can redirect in its own mount namespace. The
//! paths are resolved when the rules are loaded and periodically after that ([`Programs::refresh`]), never by a thread
//! that serves the mount: they may lead through the mount.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::RwLock;
use shunt_policy::Policy;

/// Device and inode number.
pub(crate) type Identity = (u64, u64);

type Resolved = BTreeMap<PathBuf, Option<Identity>>;

#[derive(Default)]
pub(crate) struct Programs(RwLock<Resolved>);

/// Maximum wait for path resolution while no thread serves the mount.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);

fn resolve(policy: &Policy) -> Resolved {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    policy.programs().map(|path| (path.to_owned(), identity(path))).collect()
}

impl Programs {
    /// Resolves all paths of a policy.
    pub(crate) fn refresh(&self, policy: &Policy) {
        let resolved = resolve(policy);
        if *self.0.read() != resolved {
            *self.0.write() = resolved;
        }
    }

    /// Resolves all paths on a separate thread, which may block while no thread serves the mount, and waits briefly. A
    /// path that is not resolved in time counts against the caller.
    pub(crate) fn refresh_soon(&self, policy: &Policy) {
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

    /// Reports whether a path was resolved to this file.
    pub(crate) fn is(&self, path: &Path, running: Identity) -> bool {
        self.0.read().get(path).copied().flatten() == Some(running)
    }
}
