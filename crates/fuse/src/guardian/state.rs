//! The state of a guardian: the mounts that it watches, and what it holds for a later server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use super::exit_watch::Life;
use super::fd_store::Held;
use super::log::{log, now};
use super::removal::Watched;
use super::wire::Message;

/// More mounts than one server ever has; bounds the memory.
const MAX_HELD_DESCRIPTORS: usize = 4096;

/// What the guardian knows of its server.
#[derive(Default)]
pub(super) struct GuardianState {
    pub(super) mounts: BTreeMap<u32, Watched>,
    pub(super) held: Held,
    /// How to start another server: how many crashes are too many, and its arguments. Settled by the first packet.
    pub(super) restart: Option<(u32, Vec<OsString>)>,
    /// A server that dies from now on is followed by another one.
    pub(super) armed: bool,
    /// No other mounts are taken, and nothing else is kept.
    pub(super) sealed: bool,
    /// The server.
    pub(super) life: Option<Life>,
    /// The server ends on purpose.
    pub(super) ending: bool,
    /// The program of the next server, where it is to be another one, and when the server began to hand over.
    pub(super) upgrade: Option<(OwnedFd, u64)>,
    /// The server has taken over.
    pub(super) serving: bool,
}

impl GuardianState {
    /// The only mount, if another server is to serve it on.
    pub(super) fn to_be_continued(&self) -> Option<(u32, &Watched)> {
        let (token, watched) = self.mounts.iter().next()?;
        let mounted = self.mounts.len() == 1 && matches!(watched, Watched::Mounted { .. });
        (mounted && self.is_armed() && !self.ending).then_some((*token, watched))
    }

    pub(super) fn is_armed(&self) -> bool {
        self.armed && self.restart.is_some()
    }

    /// Settles what may ever be done, by the first packet. `false` where that is none that does.
    pub(super) fn settle(&mut self, first: Option<Message>) -> bool {
        match first {
            Some(Message::UnmountOnly) => {}
            Some(Message::Restart { crashes, arguments }) => self.restart = Some((crashes, arguments)),
            _ => return false,
        }
        true
    }

    /// Whether the server may ask for this, now. One that reads what nobody vouches for may be told what to say.
    pub(super) fn allows(&self, message: &Message) -> bool {
        match message {
            Message::Release { .. } | Message::Ending => true,
            Message::Pending { .. } | Message::Mounted { .. } => !self.sealed,
            Message::Hold(_) | Message::LetGo(_) | Message::Arm | Message::Upgrade | Message::Serving => {
                !self.sealed && self.restart.is_some()
            }
            Message::Seal => true,
            Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. } => false,
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self.mounts.values().next() {
            Some(Watched::Mounted { path, .. } | Watched::Pending { path, .. }) => path.clone(),
            None => PathBuf::new(),
        }
    }

    pub(super) fn note(&mut self, message: Option<Message>, descriptor: Option<OwnedFd>) {
        let message = message.filter(|message| self.allows(message));
        let (token, watched) = match (message, descriptor) {
            (Some(Message::Pending { token, before, path }), _) => (token, Watched::Pending { before, path }),
            (Some(Message::Mounted { token, mark, path }), _) => (token, Watched::Mounted { mark, path }),
            (Some(Message::Release { token }), _) => {
                self.mounts.remove(&token);
                return;
            }
            (Some(Message::Hold(key)), Some(descriptor)) => {
                self.held.insert(key, descriptor);
                return;
            }
            (Some(Message::Hold(key)), None) => {
                // The name must not lead to an older descriptor.
                self.held.remove(&key);
                log("no descriptor is left for a file of the server: it will be lost if the server dies");
                return;
            }
            (Some(Message::LetGo(key)), _) => {
                self.held.remove(&key);
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
                self.upgrade = program.map(|program| (program, now()));
                return;
            }
            (Some(Message::Serving), _) => {
                self.serving = true;
                return;
            }
            (Some(Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. }) | None, _) => {
                log("dropped a message that it does not know, or that its server may not send");
                return;
            }
        };
        if self.mounts.len() < MAX_HELD_DESCRIPTORS || self.mounts.contains_key(&token) {
            self.mounts.insert(token, watched);
        } else {
            log("too many mounts: one is not watched");
        }
    }
}
