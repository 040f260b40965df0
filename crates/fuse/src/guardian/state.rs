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
