//! Ways of unmounting: cleanly, by force, and of a mount that was never served.
//!
//! A daemon unmounts by itself when a signal ends it, and through the helper process when it is sandboxed. Both use these.

use std::io;
use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::Duration;

use shunt_fuse::mount::{MountError, MountPoint, Unmount};

use crate::{grafts, mount_users};

/// Attempts to unmount a busy mount, and the pause between them: a program that accesses it briefly gets half a second.
const MAX_UNMOUNT_ATTEMPTS: u32 = 10;
const UNMOUNT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Unmounts cleanly, on a thread of its own so that further signals are handled. The session ends with the mount.
pub fn in_good_order(mount: MountPoint, grafts: Vec<PathBuf>) {
    let fallback = mount.clone();
    let spawned = thread::Builder::new().name("unmount".into()).spawn(move || {
        for _ in 0..MAX_UNMOUNT_ATTEMPTS {
            grafts::unmount(&mount, &grafts);
            match mount.unmount(Unmount::Normal) {
                Err(MountError::Busy(_)) => thread::sleep(UNMOUNT_RETRY_DELAY),
                Ok(()) => return,
                // Detached earlier, and still in use by its last users.
                Err(MountError::NotMounted(_)) => break,
                Err(error) => {
                    tracing::warn!("{error}");
                    break;
                }
            }
        }
        by_force(&mount);
    });
    if spawned.is_err() {
        by_force(&fallback);
    }
}

/// Removes a mount that is not served yet: programs that access it block until then.
pub fn remove_unserved(mount: &MountPoint) {
    // The abort comes first: unmounting a block device waits for a reply.
    let _ = mount.abort();
    let _ = mount.unmount(Unmount::Lazy);
}

/// Detaches the mount although it is in use, and aborts the connection, which fails the requests of its users.
pub fn by_force(mount: &MountPoint) {
    if mount.is_mounted() {
        let users: Vec<String> = mount_users::of(mount).iter().map(ToString::to_string).collect();
        let users = if users.is_empty() { String::new() } else { format!(" by {}", users.join(", ")) };
        tracing::warn!(
            "{} is in use{users}: unmounting it anyway; their requests will fail",
            mount.path().display()
        );
        if let Err(error) = mount.unmount(Unmount::Lazy) {
            tracing::warn!("{error}");
        }
    }
    if let Err(error) = mount.abort() {
        // Without a way to abort, exiting has the same effect: the kernel sees the device closed.
        tracing::debug!("{error}");
        if !matches!(&error, MountError::Connection { error, .. } if error.kind() == io::ErrorKind::NotFound)
        {
            process::exit(1);
        }
    }
}
