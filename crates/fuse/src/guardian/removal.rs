//! Removal of mounts whose server has exited: abort the connection, then unmount lazily, with retries. A mount of unknown state is
//! probed first, so that the mount of a restarted server is left alone.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use super::log::log;
use crate::mount::{MountError, MountIdentity, MountPoint, Unmount};

/// Pauses between the attempts to unmount, in milliseconds; about four seconds in all.
const UNMOUNT_RETRY_DELAYS_MS: [u64; 6] = [10, 50, 200, 500, 1000, 2000];
/// Timeout of the probe whether a mount of unknown state is dead.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum WatchedMount {
    Pending {
        before: MountIdentity,
        path: PathBuf,
    },
    Mounted {
        mark: MountIdentity,
        path: PathBuf,
    },
    /// The device of a guest, at the socket of this path.
    Guest {
        path: PathBuf,
    },
}

/// Removes a mount; returns whether the mount no longer exists.
pub(super) fn remove_watched(watched: WatchedMount) -> bool {
    match watched {
        WatchedMount::Mounted { mark, path } => remove(&MountPoint::new(path, mark)),
        WatchedMount::Pending { before, path } => remove_pending(before, &path),
        // The socket stays, and the next server replaces it.
        WatchedMount::Guest { .. } => true,
    }
}

fn remove(mount: &MountPoint) -> bool {
    let mut last = None;
    for pause in UNMOUNT_RETRY_DELAYS_MS {
        if !mount.is_mounted() {
            return true;
        }
        // Fails the requests that wait for a reply, even if the unmount is refused.
        let _ = mount.abort();
        match mount.unmount(Unmount::Lazy) {
            Ok(()) | Err(MountError::NotMounted(_)) => {
                log(&format!("the server has ended: unmounted {}", mount.path().display()));
                return true;
            }
            Err(error) => last = Some(error),
        }
        thread::sleep(Duration::from_millis(pause));
    }
    if let Some(error) = last {
        log(&format!("the server has ended, and its mount cannot be removed: {error}"));
    }
    false
}

/// Removes a mount whose server died around its mount call, so that neither its existence nor its id is known. A new mount at the
/// path is ours if its server has exited; the mount of a restarted server is alive.
fn remove_pending(before: MountIdentity, path: &Path) -> bool {
    // The mount helper may still be about to mount.
    for pause in &UNMOUNT_RETRY_DELAYS_MS[..4] {
        if let Ok(mount) = MountPoint::find(path) {
            if mount.mark() != before {
                return if is_dead(path) { remove(&mount) } else { true };
            }
        }
        thread::sleep(Duration::from_millis(*pause));
    }
    true
}

/// Probes the mount itself, in another thread because a hung server would not reply.
fn is_dead(path: &Path) -> bool {
    let (answer, dead) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let seen = statx(CWD, &path, flags, StatxFlags::TYPE);
        let _ = answer.send(matches!(seen, Err(Errno::NOTCONN | Errno::CONNABORTED)));
    });
    dead.recv_timeout(PROBE_TIMEOUT).unwrap_or(false)
}
