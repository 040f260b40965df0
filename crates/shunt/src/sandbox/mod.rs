//! What a daemon that reads untrusted bytes gives up once it serves: should an image find a bug, it finds no way out by
//! another program, by a file, by the network, by another process or by the kernel's riskier doors.
//!
//! Who is locked in cannot unmount. A process that was started before, [`unmount_helper`], does it when asked.

mod identity;
mod landlock;
mod namespace;
mod probe;
mod seccomp;
pub mod unmount_helper;

use std::io;
use std::os::fd::BorrowedFd;

use rustix::thread::CapabilitySet;

pub use landlock::Places;
pub use probe::on_entry as probe_on_entry;
pub use seccomp::Served;
pub use unmount_helper::Outside;

/// Locks all threads of this process in, and those that come, which serve an image. Some of root's rights may be `kept`.
pub fn enter(outside: Outside<'_>, served: Served, kept: CapabilitySet) {
    learn();
    if !someone_unmounts(outside) {
        return;
    }
    let kept = match served.kernel {
        true => kept.union(identity::PASSING_THROUGH),
        false => kept,
    };
    if kept.is_empty()
        && let Err(error) = identity::become_nobody()
    {
        tracing::warn!("the daemon stays the user that it is: {error}");
    }
    forbid(landlock::of_image(), kept, seccomp::For::Image(served));
}

/// Locks all threads of this process in, and those that come, which keeps a volume here and speaks to its stores: with the files
/// that it has there, and no programs.
pub fn enter_to_keep(outside: Outside<'_>, places: &Places, served: Served) {
    learn();
    if someone_unmounts(outside) {
        forbid(landlock::of_network(places), identity::KEEPING_VOLUMES, seccomp::For::Network(served));
    }
}

/// The same for who serves the stores of a volume to other machines.
pub fn enter_to_serve_stores(places: &Places) {
    learn();
    forbid(landlock::of_network(places), identity::OF_STORES, seccomp::For::Network(Served::default()));
}

/// Starts who unmounts for a process that is to be locked in. Without one nobody could do so in good order: it is not locked in
/// then. First of all, for it takes a program.
fn someone_unmounts(outside: Outside<'_>) -> bool {
    let started = unmount_helper::start(outside);
    if let Err(error) = &started {
        tracing::warn!("not locked in: {error}");
    }
    started.is_ok()
}

/// Gives up all files but these, all of root's rights but those that are `kept`, and at last, for it refuses what the other steps
/// take, system calls.
fn forbid(files: io::Result<landlock::Rules>, kept: CapabilitySet, whom: seccomp::For) {
    if let Err(error) = landlock::forbid(files, kept) {
        tracing::warn!("all files can still be opened: {error}");
    }
    if let Err(error) = seccomp::forbid(whom) {
        tracing::warn!("not locked in: {error}");
        return;
    }
    probe::run();
}

/// Asks the kernel what libraries ask it only when they first need it, by calls that are refused afterwards.
fn learn() {
    let _ = rustix::param::page_size();
}

/// Locks this process in, which has one thread, before it looks into an image that is open: with no file, program, socket or right.
pub fn enter_to_look() {
    learn();
    let _ = identity::become_nobody();
    // What the kernel does not have is no reason not to look.
    let _ = landlock::forbid_all_but(None, CapabilitySet::empty());
    let _ = seccomp::forbid(seccomp::For::Image(Served::default()));
    probe::run();
}

/// The same for who makes files of what is in an image: below a directory, in all owners' names, and nothing else.
pub fn enter_to_extract(target: BorrowedFd<'_>) {
    learn();
    let _ = landlock::forbid_all_but(Some(target), namespace::KEPT);
    let _ = seccomp::forbid(seccomp::For::Extract);
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
    // Not possible any more when the daemon goes into the background.
    let _ = std::env::set_current_dir("/");
    seccomp::forbid(seccomp::For::Guest)?;
    probe::run();
    Ok(())
}
