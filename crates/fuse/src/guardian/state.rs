//! The state of a guardian: the mounts that it watches, and what it holds for a later server.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};

use super::exit_watch::ServerProcess;
use super::fd_store::{DescriptorClass, StoredDescriptors};
use super::log::{log, now};
use super::removal::WatchedMount;
use super::wire::Message;

/// Maximum number of watched mounts, more than one server ever has: bounds the memory.
const MAX_WATCHED_MOUNTS: usize = 4096;

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
        let mounted = self.mounts.len() == 1 && matches!(watched, WatchedMount::Mounted { .. });
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
        match message {
            Message::Release { .. } | Message::Ending => true,
            Message::Pending { .. } | Message::Mounted { .. } => !self.sealed,
            Message::Arm | Message::Serving | Message::Upgrade => self.restart.is_some(),
            // A file system that takes over parses its own descriptors as carefully as everything else.
            Message::Store(key) | Message::Remove(key) => {
                let is_own = matches!(key.class, DescriptorClass::FileSystem | DescriptorClass::Node);
                self.restart.is_some() && (!self.sealed || is_own)
            }
            Message::Seal => true,
            Message::Restart { .. } | Message::UnmountOnly | Message::Go { .. } => false,
        }
    }

    /// Opens the program that is at the path of this one now.
    fn installed_program(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = self.program.as_ref().map(|path| rustix::fs::open(path, flags, Mode::empty()));
        opened?.inspect_err(|errno| log(&format!("cannot open the new program: {errno}"))).ok()
    }

    pub(super) fn path(&self) -> PathBuf {
        match self.mounts.values().next() {
            Some(WatchedMount::Mounted { path, .. } | WatchedMount::Pending { path, .. }) => path.clone(),
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
                self.descriptors.insert(key, descriptor);
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
