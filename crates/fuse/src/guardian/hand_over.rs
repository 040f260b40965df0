//! The successor's side of a takeover: receives the descriptors and the state of the last server from the guardian.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

#[cfg(feature = "virtiofs")]
use super::fd_store::SESSION_STATE;
use super::fd_store::{DescriptorClass, Key, StoredDescriptors};
use super::log::now;
use super::record::Record;
use super::removal::{WatchedMount, remove_watched};
use super::service_manager::{DescriptorStore, ManagedLink, StoreContent};
use super::wire::{MAX_PACKET_BYTES, Message};
use super::{Cause, Guardian, GuardianError, Link, Watch, seqpacket};
use crate::id::NodeId;
use crate::mount::{Dev, MountId, MountIdentity, MountPoint};

/// Everything that a successor receives from the guardian in order to continue the session.
#[derive(Debug)]
pub struct HandOver {
    pub(crate) guardian: Guardian,
    pub(crate) descriptors: StoredDescriptors,
    pub(crate) watch: Watch,
    pub(crate) mount: MountPoint,
    pub(crate) takeovers: u32,
    gone_since: u64,
    cause: Cause,
}

impl HandOver {
    /// Receives the hand-over from standard input. Call it first in a process that a guardian started with the arguments of
    /// [`Restart`](super::Restart). Until the session serves, the process must not touch the mount, not even as part of a path:
    /// its requests would get no reply.
    ///
    /// # Errors
    ///
    /// Standard input is not a guardian's socket, or is closed.
    pub fn receive() -> Result<Self, GuardianError> {
        let socket = take_stdin().map_err(|_| GuardianError::NoHandOver("standard input is closed"))?;
        let mut held = StoredDescriptors::new();
        let mut mounted = None;
        let mut buf = vec![0; MAX_PACKET_BYTES];
        let (takeovers, oom_score, gone_since, cause) = loop {
            let (length, descriptor) =
                seqpacket::receive(socket.as_fd(), &mut buf).map_err(|_| NOT_A_GUARDIAN)?;
            match (Message::decode(&buf[..length]), descriptor) {
                (Some(Message::Store(key)), Some(descriptor)) => drop(held.insert(key, descriptor)),
                (Some(Message::Mounted { token, mark, path }), _) => {
                    mounted = Some((Watch(token), MountPoint::new(path, mark)));
                }
                (Some(Message::Guest { token, path }), _) => {
                    mounted = Some((Watch(token), MountPoint::new(path, NO_MOUNT)));
                }
                (Some(Message::Go { takeovers, oom_score, gone_since, cause }), _) => {
                    break (takeovers, oom_score, gone_since, cause);
                }
                _ if length == 0 => return Err(NOT_A_GUARDIAN),
                _ => {}
            }
        };
        let (watch, mount) = mounted.ok_or(GuardianError::NoHandOver("the guardian handed over no mount"))?;
        // The guardian is protected from the OOM killer, and its children inherit that.
        let _ = std::fs::write("/proc/self/oom_score_adj", oom_score.to_string());
        let next = AtomicU32::new(watch.0.wrapping_add(1));
        let link = Link::Process { socket, child: None };
        let guardian = Guardian { link, next, restarts: false, sealed: AtomicBool::new(false) };
        Ok(Self { guardian, descriptors: held, watch, mount, takeovers, gone_since, cause })
    }

    /// Decides what to do with the descriptors that the service manager passed to this process from its store. `arguments` are
    /// this server's; `crashes` is the number of servers that may crash within ten seconds.
    ///
    /// A mount that cannot be continued is removed, and the store is emptied.
    pub fn inherit(
        store: Box<dyn DescriptorStore>,
        passed: Vec<(String, OwnedFd)>,
        arguments: &[OsString],
        crashes: u32,
    ) -> Inherited {
        let content = StoreContent::new(passed);
        if content.names.is_empty() {
            return Inherited::Nothing;
        }
        // A record of another version is as good as none: its mount cannot be found either, and is dead once the store is empty.
        let record = content.record.and_then(Record::open);
        let refusal = match record {
            None => ("the last server left no record that this version reads".to_owned(), None),
            Some(mut record) => match may_continue(&mut record, arguments, crashes) {
                Ok(cause) => match record.mount.clone() {
                    Some((token, mark, path)) => {
                        let (watch, mount) = (Watch(token), MountPoint::new(path, mark));
                        let (takeovers, gone) = (record.header.takeovers, record.header.gone);
                        let link = ManagedLink::resumed(store, record, content.generations);
                        let next = AtomicU32::new(token.wrapping_add(1));
                        let guardian = Guardian {
                            link: Link::ServiceManager(Box::new(link)),
                            next,
                            restarts: true,
                            sealed: AtomicBool::new(false),
                        };
                        let descriptors = content.descriptors;
                        return Inherited::HandOver(Box::new(Self {
                            guardian,
                            descriptors,
                            watch,
                            mount,
                            takeovers,
                            gone_since: gone,
                            cause,
                        }));
                    }
                    None => ("the last server left no mount".to_owned(), None),
                },
                Err(reason) => (reason, record.mount),
            },
        };
        let (reason, mount) = refusal;
        for name in &content.names {
            let _ = store.remove(name);
        }
        drop(content.descriptors);
        if let Some((_, mark, path)) = mount {
            remove_watched(WatchedMount::Mounted { mark, path });
        }
        Inherited::Refused(reason)
    }

    /// Returns the mount to serve.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
    }

    /// Reports whether a guest had mounted the file system of the last server: there is a session to continue.
    #[cfg(feature = "virtiofs")]
    pub fn has_session(&self) -> bool {
        self.descriptors.contains_key(&SESSION_STATE)
    }

    /// Makes the guardian accept only what the server of a guest needs from here on: the state of its session and a limited number
    /// of files. Call it before this process reads anything from the guest.
    ///
    /// # Errors
    ///
    /// The guardian process has exited.
    #[cfg(feature = "virtiofs")]
    pub fn confine_guardian(&self) -> Result<(), GuardianError> {
        self.guardian.confine()
    }

    /// Returns the number of this takeover of the mount, counted from 1.
    pub fn takeovers(&self) -> u32 {
        self.takeovers
    }

    /// Returns the reason why the last server ended.
    pub fn cause(&self) -> Cause {
        self.cause
    }

    /// Takes the log file that the last server wrote.
    pub fn take_log(&mut self) -> Option<File> {
        self.descriptors.remove(&Key { class: DescriptorClass::Log, id: 0 }).map(File::from)
    }

    /// Takes the descriptor that the last server's file system had stored under this id.
    pub fn take(&mut self, id: u64) -> Option<OwnedFd> {
        self.descriptors.remove(&Key { class: DescriptorClass::FileSystem, id })
    }

    /// Takes the remaining descriptors that the last server's file system had stored, with their ids.
    pub fn take_all(&mut self) -> Vec<(u64, OwnedFd)> {
        self.take_class(DescriptorClass::FileSystem).map(|(key, descriptor)| (key.id, descriptor)).collect()
    }

    /// Takes the remaining inodes that the last server's file system had stored.
    pub fn take_nodes(&mut self) -> Vec<(NodeId, OwnedFd)> {
        self.take_class(DescriptorClass::Node).map(|(key, descriptor)| (NodeId(key.id), descriptor)).collect()
    }

    fn take_class(&mut self, class: DescriptorClass) -> impl Iterator<Item = (Key, OwnedFd)> + use<> {
        let all = std::mem::take(&mut self.descriptors);
        let (taken, rest) = all.into_iter().partition(|(key, _)| key.class == class);
        self.descriptors = rest;
        taken.into_iter()
    }

    /// Returns the time since the guardian noticed the end of the last server, or since that server began to hand over.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.gone_since))
    }
}

/// The outcome of reading the descriptors that a service manager passed to a server at its start.
#[derive(Debug)]
pub enum Inherited {
    /// Nothing of an earlier server: mount anew.
    Nothing,
    /// The mount of an earlier server, to be continued.
    HandOver(Box<HandOver>),
    /// The mount of an earlier server cannot be continued, for this reason, and was removed: mount anew.
    Refused(String),
}

/// Sliding window of the crash limit, in nanoseconds.
const CRASH_WINDOW_NANOS: u64 = 10_000_000_000;
/// Attempts to take over that may fail before the mount is removed.
const MAX_ATTEMPTS: u32 = 3;

/// Reports whether this server may continue, and counts the attempt.
fn may_continue(record: &mut Record, arguments: &[OsString], crashes: u32) -> Result<Cause, String> {
    if record.arguments != arguments {
        return Err("the command line of the service has changed".to_owned());
    }
    let header = &mut record.header;
    header.attempts += 1;
    let cause = if header.planned { Cause::Restart } else { Cause::Death };
    if header.attempts > MAX_ATTEMPTS {
        return Err(format!("{MAX_ATTEMPTS} attempts to take it over failed"));
    }
    if !header.planned && header.attempts == 1 {
        let count = header.count_crash(now(), CRASH_WINDOW_NANOS);
        if count >= (crashes.max(1) as usize).min(super::record::MAX_CRASH_TIMES) {
            return Err(format!("its server crashed {count} times within 10 seconds"));
        }
    }
    if header.gone == 0 {
        header.gone = now();
    }
    header.takeovers += 1;
    record.write_header().map_err(|error| format!("its record cannot be written: {error}"))?;
    Ok(cause)
}

/// The identity of what a guest's device has instead of a mount.
const NO_MOUNT: MountIdentity =
    MountIdentity { id: MountId::Reusable(0), old_id: 0, dev: Dev { major: 0, minor: 0 } };

const NOT_A_GUARDIAN: GuardianError = GuardianError::NoHandOver("standard input is not a guardian's socket");

/// Takes over standard input and replaces it by /dev/null, so that no child inherits the socket.
fn take_stdin() -> rustix::io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(socket)
}
