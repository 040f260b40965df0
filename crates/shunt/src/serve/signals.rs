//! Signals that end a daemon: the first one unmounts cleanly, the second one by force, and the third one exits.

use std::io;
use std::path::PathBuf;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use shunt_fuse::guardian::Guardian;
use shunt_fuse::mount::{MountError, MountPoint, Unmount};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator;

use super::daemon_info::DaemonInfo;
use crate::control::Provider;
use crate::error::{Result, failed};
use crate::log::STATISTICS;
use crate::sandbox::unmount_helper;
use crate::{grafts, mount_users};

/// Attempts to unmount a busy mount, and the pause between them: a program that accesses it briefly gets half a second.
const MAX_UNMOUNT_ATTEMPTS: u32 = 10;
const UNMOUNT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The signals that this process handles.
pub struct Signals(iterator::Signals);

impl Signals {
    /// Registers the signals. From here on none of them ends this process by default.
    pub fn register() -> io::Result<Self> {
        iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1]).map(Signals)
    }

    /// Handles the signals, including earlier ones, on a thread of its own.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watch(
        mut self,
        mount: MountPoint,
        guardian: Option<Arc<Guardian>>,
        facts: Arc<DaemonInfo>,
        reload: Option<Arc<dyn Fn() + Send + Sync>>,
    ) -> Result<()> {
        let work = move || {
            let mut ends = 0;
            for signal in self.0.forever() {
                if signal == SIGUSR1 {
                    log_statistics(&facts);
                    continue;
                }
                if let (SIGHUP, Some(reload)) = (signal, &reload) {
                    reload();
                    continue;
                }
                ends += 1;
                // Whatever happens to this process, no other daemon is to take over.
                let _ = guardian.as_ref().map(|guardian| guardian.end());
                match ends {
                    1 | 2 if unmount_helper::unmount(ends == 2) => {}
                    1 => in_good_order(mount.clone(), facts.grafts()),
                    2 => by_force(&mount),
                    // The guardian cleans up.
                    _ => process::exit(1),
                }
            }
        };
        thread::Builder::new()
            .name("signals".into())
            .spawn(work)
            .map(drop)
            .map_err(|error| failed(format_args!("cannot start a thread: {error}")))
    }
}

fn log_statistics(facts: &DaemonInfo) {
    match serde_json::to_string(&facts.stat()) {
        Ok(json) => tracing::info!(target: STATISTICS, "{json}"),
        Err(error) => tracing::warn!("cannot write statistics: {error}"),
    }
}

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
    if unmount_helper::remove_unserved() {
        return;
    }
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
            "{} is in use{users}: unmounting anyway, their requests will fail",
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
