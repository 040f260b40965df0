//! Taking mounts away whose server is gone.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;

use super::log::log;
use crate::mount::{Mark, MountError, MountPoint, Unmount};

/// Waits between the tries to take a mount away; about four seconds in all.
const PAUSES: [u64; 6] = [10, 50, 200, 500, 1000, 2000];
/// How long a mount of unknown state may take to show whether it is dead.
const PROBE: Duration = Duration::from_secs(2);

pub(super) enum Watched {
    Pending { before: Mark, path: PathBuf },
    Mounted { mark: Mark, path: PathBuf },
}

/// Whether nothing is left of it.
pub(super) fn take_away(watched: Watched) -> bool {
    match watched {
        Watched::Mounted { mark, path } => remove(&MountPoint::new(path, mark)),
        Watched::Pending { before, path } => remove_pending(before, &path),
    }
}

fn remove(mount: &MountPoint) -> bool {
    let mut last = None;
    for pause in PAUSES {
        if !mount.is_mounted() {
            return true;
        }
        // Ends what still waits for an answer, even if the unmount is refused.
        let _ = mount.abort();
        match mount.unmount(Unmount::Lazy) {
            Ok(()) | Err(MountError::NotMounted(_)) => {
                log(&format!("the server is gone: unmounted {}", mount.path().display()));
                return true;
            }
            Err(error) => last = Some(error),
        }
        thread::sleep(Duration::from_millis(pause));
    }
    if let Some(error) = last {
        log(&format!("the server is gone, but its mount stays: {error}"));
    }
    false
}

/// The server died around its mount call, so it is not known whether and which mount is there. A new one at
/// the path is ours if its server is gone; a restarted server's mount is alive.
fn remove_pending(before: Mark, path: &Path) -> bool {
    // The helper may still be about to mount.
    for pause in &PAUSES[..4] {
        if let Ok(mount) = MountPoint::find(path)
            && mount.mark() != before
        {
            return if is_dead(path) { remove(&mount) } else { true };
        }
        thread::sleep(Duration::from_millis(*pause));
    }
    true
}

/// Asks the mount itself, in another thread because a hung server would not answer.
fn is_dead(path: &Path) -> bool {
    let (answer, dead) = mpsc::channel();
    let path = path.to_owned();
    thread::spawn(move || {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let seen = statx(CWD, &path, flags, StatxFlags::TYPE);
        let _ = answer.send(matches!(seen, Err(Errno::NOTCONN | Errno::CONNABORTED)));
    });
    dead.recv_timeout(PROBE).unwrap_or(false)
}
