//! The successor's side of a takeover: receives the descriptors and the state of the last server from the guardian.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::fd_store::{DescriptorClass, Key, StoredDescriptors};
use super::log::now;
use super::wire::{MAX_PACKET_BYTES, Message};
use super::{Cause, Guardian, GuardianError, Watch, seqpacket};
use crate::id::NodeId;
use crate::mount::MountPoint;

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
        let guardian = Guardian { socket, child: None, next, restarts: false };
        Ok(Self { guardian, descriptors: held, watch, mount, takeovers, gone_since, cause })
    }

    /// Returns the mount to serve.
    pub fn mount_point(&self) -> &MountPoint {
        &self.mount
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
        let ours = |key: &Key, _: &mut OwnedFd| key.class == DescriptorClass::FileSystem;
        self.descriptors.extract_if(.., ours).map(|(key, descriptor)| (key.id, descriptor)).collect()
    }

    /// Takes the remaining inodes that the last server's file system had stored.
    pub fn take_nodes(&mut self) -> Vec<(NodeId, OwnedFd)> {
        let nodes = |key: &Key, _: &mut OwnedFd| key.class == DescriptorClass::Node;
        self.descriptors.extract_if(.., nodes).map(|(key, descriptor)| (NodeId(key.id), descriptor)).collect()
    }

    /// Returns the time since the guardian noticed the end of the last server, or since that server began to hand over.
    pub fn pause(&self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.gone_since))
    }
}

const NOT_A_GUARDIAN: GuardianError = GuardianError::NoHandOver("standard input is not a guardian's socket");

/// Takes over standard input and replaces it by /dev/null, so that no child inherits the socket.
fn take_stdin() -> rustix::io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3)?;
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?;
    rustix::stdio::dup2_stdin(null)?;
    Ok(socket)
}
