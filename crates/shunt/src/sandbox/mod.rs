//! The sandbox of daemons that parse untrusted bytes: once it serves, an image that exploits a bug cannot run other programs,
//! open files, use the network, affect other processes, or reach the riskier system calls of the kernel.
//!
//! A sandboxed daemon cannot unmount. A process started before, [`unmount_helper`], does it on request.

mod identity;
mod landlock;
mod namespace;
mod probe;
mod seccomp;
pub mod unmount_helper;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::CapabilitySet;

pub use landlock::AccessiblePaths;
pub use probe::on_entry as probe_on_entry;
pub use seccomp::DaemonFeatures;
pub use unmount_helper::HelperArgs;

/// Sandboxes the daemon of an image: all threads, and those that they start later. The capabilities in `kept` stay.
pub fn enter(outside: HelperArgs<'_>, served: DaemonFeatures, kept: CapabilitySet) {
    learn();
    if !start_unmount_helper(outside) {
        return;
    }
    let kept = match served.kernel {
        true => kept.union(identity::PASSTHROUGH_CAPABILITIES),
        false => kept,
    };
    if kept.is_empty()
        && let Err(error) = identity::switch_to_nobody()
    {
        tracing::warn!("sandbox incomplete: cannot switch to an unprivileged user id: {error}");
    }
    forbid(landlock::of_image(), kept, seccomp::Profile::Image(served));
}

/// Sandboxes the daemon of a volume, all threads included: it can open the files of its cache and its stores and use the network,
/// but run no programs.
pub fn enter_volume(outside: HelperArgs<'_>, paths: &AccessiblePaths, served: DaemonFeatures) {
    learn();
    if start_unmount_helper(outside) {
        forbid(landlock::of_network(paths), identity::VOLUME_CAPABILITIES, seccomp::Profile::Network(served));
    }
}

/// Sandboxes a gateway, which serves the stores of a volume to other machines.
pub fn enter_gateway(paths: &AccessiblePaths) {
    learn();
    forbid(
        landlock::of_network(paths),
        identity::STORE_CAPABILITIES,
        seccomp::Profile::Network(DaemonFeatures::default()),
    );
}

/// Starts the unmount helper, before the sandbox forbids running programs. If that fails the daemon is not sandboxed, as nothing
/// could unmount it cleanly.
fn start_unmount_helper(outside: HelperArgs<'_>) -> bool {
    let started = unmount_helper::start(outside);
    if let Err(error) = &started {
        tracing::warn!("no sandbox: cannot start the unmount helper: {error}");
    }
    started.is_ok()
}

/// Drops access to all files but these and all capabilities but those in `kept`. The seccomp filter comes last, as it refuses the
/// calls of the other steps.
fn forbid(files: io::Result<landlock::Rules>, kept: CapabilitySet, whom: seccomp::Profile) {
    if let Err(error) = landlock::forbid(files, kept) {
        tracing::warn!("sandbox incomplete: cannot restrict file access by Landlock: {error}");
    }
    if let Err(error) = seccomp::forbid(whom) {
        tracing::warn!("sandbox incomplete: cannot restrict system calls by seccomp: {error}");
        return;
    }
    probe::run();
}

/// Makes the system calls that libraries make on first use, before the filter denies them.
fn learn() {
    let _ = rustix::param::page_size();
}

/// Sandboxes this process, which has a single thread, before it reads an image that is open: without files, programs, sockets and
/// capabilities.
pub fn enter_inspect() {
    learn();
    let _ = identity::switch_to_nobody();
    // Restrictions that the kernel does not support are skipped.
    let _ = landlock::restrict_process_to(None, CapabilitySet::empty());
    let _ = seccomp::forbid(seccomp::Profile::Image(DaemonFeatures::default()));
    probe::run();
}

/// Sandboxes this process, which has a single thread, before it extracts files of an image: it can create files of all owners
/// below `target`, and nothing else.
pub fn enter_extract(target: BorrowedFd<'_>) {
    learn();
    let _ = landlock::restrict_process_to(Some(target), namespace::MIRROR_CAPABILITIES);
    let _ = seccomp::forbid(seccomp::Profile::Extract);
    probe::run();
}

/// Sandboxes this process, which is to serve a guest and still has a single thread: in an empty mount namespace, without the
/// capabilities and system calls that serving a directory does not need.
///
/// # Errors
/// A restriction cannot be applied. Users without the privilege for a mount namespace of their own keep the existing one.
pub fn enter_for_guest() -> Result<(), String> {
    if namespace::possible() {
        namespace::enter().map_err(|error| format!("cannot enter a mount namespace: {error}"))?;
        namespace::drop_rights().map_err(|error| format!("cannot drop capabilities: {error}"))?;
    } else {
        tracing::warn!(
            "sandbox incomplete: the daemon keeps its mount namespace, because it does not run as root"
        );
    }
    // No longer possible when the daemon goes into the background.
    let _ = std::env::set_current_dir("/");
    seccomp::forbid(seccomp::Profile::Guest)?;
    probe::run();
    Ok(())
}
