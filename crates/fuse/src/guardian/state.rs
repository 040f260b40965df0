//! The state of a guardian: the mounts that it watches, and what it holds for a later server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::exit_watch::ServerProcess;
use super::fd_store::{DescriptorClass, StoredDescriptors};
#[cfg(feature = "virtiofs")]
use super::fd_store::{GUEST_CONNECTIONS, GUEST_LISTENER};
use super::log::{log, now};
use super::removal::WatchedMount;
use super::wire::Message;

/// Maximum number of watched mounts, more than one server ever has: bounds the memory.
const MAX_WATCHED_MOUNTS: usize = 4096;

/// Maximum number of stored descriptors of a server that a guest may have compromised: files that are open and unlinked, and the
/// few of the session itself.
const MAX_GUEST_DESCRIPTORS: usize = 16_384;

/// Reports whether the server of a guest needs to send this message once it is sandboxed.
fn is_allowed_to_guest(message: &Message) -> bool {
    match message {
        Message::Store(key) | Message::Remove(key) => is_of_session(key.class),
        Message::EndSession | Message::Serving | Message::Ending | Message::Release { .. } => true,
        _ => false,
    }
}

/// Reports whether descriptors of a class belong to a session, of which a guest has one after the other.
fn is_of_session(class: DescriptorClass) -> bool {
    matches!(class, DescriptorClass::State | DescriptorClass::FileSystem | DescriptorClass::Node)
}

/// The guardian's record of its server.
#[derive(Default)]
pub(super) struct GuardianState {
    pub(super) mounts: BTreeMap<u32, WatchedMount>,
    pub(super) descriptors: StoredDescriptors,
    /// The arguments of a successor and the number of crashes that are too many. Set by the first packet only.
    pub(super) restart: Option<(u32, Vec<OsString>)>,
    /// The guardian starts a successor if the server dies.
    pub(super) armed: bool,
    /// No further mounts, programs, or descriptors of the session are accepted.
    pub(super) sealed: bool,
    /// The path of this program when it started.
    pub(super) program: Option<PathBuf>,
    /// The server serves a guest, and may be compromised by it.
    pub(super) confined: bool,
    /// Holds the connections of a guest's emulator.
    #[cfg(feature = "virtiofs")]
    pub(super) relay: Option<super::relay::Relay>,
    /// The server.
    pub(super) server: Option<ServerProcess>,
    /// The server ends on purpose.
    pub(super) ending: bool,
    /// The program of an upgrade, and the time at which the server began to hand over.
    pub(super) upgrade: Option<(OwnedFd, u64)>,
    /// The server has taken over.
    pub(super) serving: bool,
}

impl GuardianState {
    /// Returns the only mount, if a successor is to serve it.
    pub(super) fn to_be_continued(&self) -> Option<(u32, &WatchedMount)> {
        let (token, watched) = self.mounts.iter().next()?;
        let mounted = self.mounts.len() == 1 && !matches!(watched, WatchedMount::Pending { .. });
        (mounted && self.is_armed() && !self.ending).then_some((*token, watched))
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed && self.restart.is_some()
    }

    /// Fixes the guardian's abilities by the first packet; returns `false` where it is not one of the two kinds that do.
    pub(super) fn apply_first(&mut self, first: Option<Message>) -> bool {
        match first {
            Some(Message::UnmountOnly) => {}
            Some(Message::Restart { crashes, arguments }) => self.restart = Some((crashes, arguments)),
            _ => return false,
        }
        true
    }

    /// Reports whether the server may send this message now. A server that reads untrusted data may be compromised.
    pub(super) fn allows(&self, message: &Message) -> bool {
        if self.confined && !is_allowed_to_guest(message) {
            return false;
        }
        match message {
            Message::Release { .. } | Message::Ending => true,
            Message::Pending { .. } | Message::Mounted { .. } => !self.sealed,
            Message::Arm | Message::Serving | Message::Upgrade => self.restart.is_some(),
            // A file system that takes over parses its own descriptors as carefully as everything else.
            Message::Store(key) | Message::Remove(key) => {
                let is_own = matches!(key.class, DescriptorClass::FileSystem | DescriptorClass::Node);
                self.restart.is_some() && (!self.sealed || is_own)
            }
            Message::Guest { .. } | Message::EndSession => !self.sealed && self.restart.is_some(),
            Message::Seal | Message::Confine => true,
            Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. } => false,
        }
    }

    /// Opens the program that is at the path of this one now.
    fn installed_program(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = self.program.as_ref().map(|path| rustix::fs::open(path, flags, Mode::empty()));
        opened?.inspect_err(|errno| log(&format!("cannot open the new program: {errno}"))).ok()
    }

    /// Starts the relay for the sockets that the server has stored.
    fn start_relay(&mut self) {
        #[cfg(feature = "virtiofs")]
        {
            let listener = self.descriptors.remove(&GUEST_LISTENER);
            let connections = self.descriptors.remove(&GUEST_CONNECTIONS);
            let (Some(listener), Some(connections), None) = (listener, connections, &self.relay) else {
                return;
            };
            match super::relay::Relay::start(listener) {
                Ok(relay) => {
                    relay.attach(connections);
                    self.relay = Some(relay);
                }
                Err(error) => log(&format!("cannot accept the connections of emulators: {error}")),
            }
        }
    }

    /// Connects the next server to the relay, if there is one; its end is among the descriptors.
    pub(super) fn attach_next_server(&mut self) -> std::io::Result<()> {
        #[cfg(feature = "virtiofs")]
        if let Some(relay) = &self.relay {
            let (ours, theirs) = super::relay::pair()?;
            self.descriptors.insert(GUEST_CONNECTIONS, theirs);
            relay.attach(ours);
        }
        Ok(())
    }

    pub(super) fn path(&self) -> PathBuf {
        match self.mounts.values().next() {
            Some(
                WatchedMount::Mounted { path, .. }
                | WatchedMount::Pending { path, .. }
                | WatchedMount::Guest { path },
            ) => path.clone(),
            None => PathBuf::new(),
        }
    }

    pub(super) fn apply(&mut self, message: Option<Message>, descriptor: Option<OwnedFd>) {
        let message = message.filter(|message| self.allows(message));
        let (token, watched) = match (message, descriptor) {
            (Some(Message::Pending { token, before, path }), _) => {
                (token, WatchedMount::Pending { before, path })
            }
            (Some(Message::Mounted { token, mark, path }), _) => {
                (token, WatchedMount::Mounted { mark, path })
            }
            (Some(Message::Release { token }), _) => {
                self.mounts.remove(&token);
                return;
            }
            (Some(Message::Store(key)), Some(descriptor)) => {
                if self.confined && self.descriptors.len() >= MAX_GUEST_DESCRIPTORS {
                    self.descriptors.remove(&key);
                    log(
                        "cannot store a file descriptor of the server: too many; the file is lost if the server crashes",
                    );
                    return;
                }
                self.descriptors.insert(key, descriptor);
                return;
            }
            (Some(Message::Guest { token, path }), _) => {
                self.start_relay();
                (token, WatchedMount::Guest { path })
            }
            (Some(Message::Confine), _) => {
                self.confined = true;
                return;
            }
            (Some(Message::EndSession), _) => {
                self.descriptors.retain(|key, _| !is_of_session(key.class));
                return;
            }
            (Some(Message::Store(key)), None) => {
                // The key must not lead to an older descriptor.
                self.descriptors.remove(&key);
                log(
                    "cannot store a file descriptor of the server: no free descriptor; the file is lost if the server crashes",
                );
                return;
            }
            (Some(Message::Remove(key)), _) => {
                self.descriptors.remove(&key);
                return;
            }
            (Some(Message::Arm), _) => {
                self.armed = true;
                return;
            }
            (Some(Message::Seal), _) => {
                self.sealed = true;
                return;
            }
            (Some(Message::Ending), _) => {
                self.ending = true;
                return;
            }
            (Some(Message::Upgrade), program) => {
                // A server that reads untrusted data chooses no program.
                let program = program.filter(|_| !self.sealed).or_else(|| self.installed_program());
                self.upgrade = program.map(|program| (program, now()));
                return;
            }
            (Some(Message::Serving), _) => {
                self.serving = true;
                return;
            }
            (Some(Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. }) | None, _) => {
                log("dropped a message of the server: unknown or not permitted");
                return;
            }
        };
        if self.mounts.len() < MAX_WATCHED_MOUNTS || self.mounts.contains_key(&token) {
            self.mounts.insert(token, watched);
        } else {
            log(
                "cannot watch one more mount of the server: too many mounts; it stays dead if the server crashes",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guardian::fd_store::Key;
    use crate::mount::MountIdentity;

    fn null() -> Option<OwnedFd> {
        std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
    }

    /// The state of a guardian whose server serves a guest, sandboxed.
    fn confined() -> GuardianState {
        let mut state = GuardianState::default();
        assert!(state.apply_first(Some(Message::Restart { crashes: 5, arguments: vec!["shunt".into()] })));
        for message in [Message::Guest { token: 0, path: "/socket".into() }, Message::Arm, Message::Confine] {
            state.apply(Some(message), None);
        }
        state
    }

    #[test]
    fn a_server_of_a_guest_may_store_files_of_its_session_only() {
        let mut state = confined();
        for class in 0..6 {
            let class = DescriptorClass::from_number(class).unwrap();
            state.apply(Some(Message::Store(Key { class, id: 7 })), null());
        }
        let mut classes: Vec<_> = state.descriptors.keys().map(|key| key.class).collect();
        classes.sort_unstable();
        assert_eq!(classes, [DescriptorClass::State, DescriptorClass::FileSystem, DescriptorClass::Node]);
        state.apply(Some(Message::EndSession), None);
        assert!(state.descriptors.is_empty());
    }

    #[test]
    fn a_server_of_a_guest_starts_no_program_and_has_no_mount_removed() {
        let mut state = confined();
        let mark = MountIdentity {
            id: crate::mount::MountId::Reusable(1),
            old_id: 1,
            dev: crate::mount::Dev { major: 0, minor: 1 },
        };
        for message in [
            Message::Upgrade,
            Message::Mounted { token: 1, mark, path: "/".into() },
            Message::Pending { token: 2, before: mark, path: "/".into() },
            Message::Guest { token: 3, path: "/other".into() },
            Message::Restart { crashes: 5, arguments: vec!["other".into()] },
        ] {
            state.apply(Some(message), null());
        }
        assert!(state.upgrade.is_none());
        assert_eq!((state.mounts.len(), state.path()), (1, "/socket".into()));
        assert_eq!(state.restart, Some((5, vec!["shunt".into()])));
        assert!(state.to_be_continued().is_some());
        state.apply(Some(Message::Ending), None);
        assert!(state.to_be_continued().is_none());
    }

    #[test]
    fn the_files_of_a_guest_are_limited() {
        let mut state = confined();
        let key = |id| Key { class: DescriptorClass::FileSystem, id };
        // Descriptors are scarce in a test; what counts is their number.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        rustix::process::setrlimit(
            rustix::process::Resource::Nofile,
            rustix::process::Rlimit { current: limit.maximum, ..limit },
        )
        .unwrap();
        for id in 0..MAX_GUEST_DESCRIPTORS as u64 + 3 {
            let Some(file) = null() else { return };
            state.apply(Some(Message::Store(key(id))), Some(file));
        }
        assert_eq!(state.descriptors.len(), MAX_GUEST_DESCRIPTORS);
        state.apply(Some(Message::Remove(key(0))), None);
        state.apply(Some(Message::Store(key(1 << 40))), null());
        assert!(state.descriptors.contains_key(&key(1 << 40)), "there is room again");
    }
}
