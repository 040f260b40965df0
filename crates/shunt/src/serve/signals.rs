//! Signals that end a daemon: the first one unmounts cleanly, the second one by force, and the third one exits. In a service that
//! keeps its mount over restarts, SIGUSR2 leaves the mount to the next process.

use std::io;
use std::process;
use std::sync::Arc;
use std::thread;

use shunt_fuse::Handle;
use shunt_fuse::guardian::Guardian;
use shunt_fuse::mount::MountPoint;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator;

use super::Attached;
use super::daemon_info::DaemonInfo;
use super::upgrade::DRAIN_TIMEOUT;
use crate::control::Provider;
use crate::error::{Result, failed};
use crate::log::STATISTICS;
use crate::sandbox::unmount_helper;
use crate::{service_manager, unmount};

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
        attached: Attached,
        facts: Arc<DaemonInfo>,
        reload: Option<Arc<dyn Fn() + Send + Sync>>,
    ) -> Result<()> {
        if attached.guardian.as_ref().is_some_and(|guardian| guardian.is_service_manager()) {
            // Only then, because entering the sandbox uses this signal. Earlier it ends this process like a crash.
            self.0
                .add_signal(SIGUSR2)
                .map_err(|error| failed(format_args!("cannot install a signal handler: {error}")))?;
        }
        let work = move || {
            let Attached { mount, handle, guardian } = attached;
            let mut ends = 0;
            for signal in self.0.forever() {
                if signal == SIGUSR1 {
                    log_statistics(&facts);
                    continue;
                }
                if signal == SIGHUP && (reload.is_some() || service_manager::is_present()) {
                    service_manager::reloading(|| reload.iter().for_each(|reload| reload()));
                    continue;
                }
                if let (SIGUSR2, Some(guardian), 0) = (signal, &guardian, ends) {
                    leave_for_restart(&handle, guardian);
                }
                ends += 1;
                service_manager::stopping();
                // No other daemon may take over, even if this process is killed.
                let _ = guardian.as_ref().map(|guardian| guardian.end());
                match ends {
                    1 | 2 if unmount_helper::unmount(ends == 2) => {}
                    1 => unmount::in_good_order(mount.clone(), facts.grafts()),
                    2 => unmount::by_force(&mount),
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

/// Leaves the mount to the next process of the service, and exits; returns if that is not possible.
fn leave_for_restart(handle: &Handle, guardian: &Guardian) {
    service_manager::stop_watchdog();
    let left = guardian.begin_restart().and_then(|()| {
        service_manager::restarting();
        if !handle.drain(DRAIN_TIMEOUT) {
            tracing::warn!(
                "restart: some requests did not finish within {} ms; the kernel resends them to the next process",
                DRAIN_TIMEOUT.as_millis()
            );
        }
        guardian.finish_restart()
    });
    match left {
        // No cleanup: the service manager holds the state.
        Ok(()) => process::exit(0),
        Err(error) => tracing::error!("cannot leave the mount to the next process: {error}; unmounting"),
    }
}

fn log_statistics(facts: &DaemonInfo) {
    match serde_json::to_string(&facts.stat()) {
        Ok(json) => tracing::info!(target: STATISTICS, "{json}"),
        Err(error) => tracing::warn!("cannot write statistics: {error}"),
    }
}

/// Removes a mount that is not served yet, through the helper process if there is one.
pub fn remove_unserved(mount: &MountPoint) {
    if !unmount_helper::remove_unserved() {
        unmount::remove_unserved(mount);
    }
}
