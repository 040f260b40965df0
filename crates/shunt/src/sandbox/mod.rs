//! What a daemon that reads untrusted bytes gives up once it serves: should an image find a bug, it finds no way out by
//! another program, by a file, by the network, by another process or by the kernel's riskier doors.
//!
//! Who is locked in cannot unmount. A process that was started before, [`outside`], does it when asked.

mod calls;
mod files;
mod namespace;
pub mod outside;
mod probe;

use std::path::Path;

pub use probe::on_entry as probe_on_entry;

/// Locks all threads of this process in, and those that come. `rings`: requests come by io_uring, and all rings are made.
pub fn enter(mountpoint: &Path, rings: bool) {
    // First, for it takes a program. Without it nobody could unmount in good order.
    if let Err(error) = outside::start(mountpoint) {
        tracing::warn!("not locked in: {error}");
        return;
    }
    if let Err(error) = calls::forbid(calls::For::Image { rings }) {
        tracing::warn!("not locked in: {error}");
        return;
    }
    // Needs what the filter brings: no new privileges.
    if let Err(error) = files::forbid() {
        tracing::warn!("files can still be opened: {error}");
    }
    probe::run();
}

/// Locks this process in, which is to serve a guest and has one thread yet: in an empty file tree, without the rights
/// and the system calls that showing a directory does not take.
///
/// # Errors
/// What cannot be given up. Where the user may not have a file tree of their own they keep the one there is.
pub fn enter_for_guest() -> Result<(), String> {
    if namespace::possible() {
        namespace::enter().map_err(|error| format!("no file tree of its own: {error}"))?;
        namespace::drop_rights().map_err(|error| format!("rights cannot be given up: {error}"))?;
    } else {
        tracing::warn!(
            "the guest is kept from the file tree by the daemon's own rights alone: that takes root"
        );
    }
    calls::forbid(calls::For::Guest)?;
    probe::run();
    Ok(())
}
