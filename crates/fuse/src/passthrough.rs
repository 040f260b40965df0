//! Passthrough: backing files that the kernel reads and writes itself, registered with the connection and shared between the
//! opens of an inode.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::io::Errno;
use shunt_sharded::Sharded;

use crate::id::NodeId;
use crate::transport::device::Device;

/// A file registered with the kernel. Dropping the last clone ends the registration; files that the kernel already opened on it
/// keep working.
#[derive(Clone)]
pub struct Backing(Arc<Registration>);

struct Registration {
    id: u32,
    node: NodeId,
    /// Device and inode, where this server registered the file.
    file: Option<(u64, u64)>,
    device: Arc<Device>,
    registry: Weak<Registry>,
}

impl Backing {
    /// Returns the backing id that the kernel assigned.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// Reports whether there are other users: open files, and replies in flight to the kernel.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl fmt::Debug for Backing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Backing").field(&self.0.id).finish()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            let mut nodes = registry.nodes(self.node).lock();
            // A newer registration of the same node may be in the map already.
            if nodes.get(&self.node).is_some_and(|held| held.strong_count() == 0) {
                nodes.remove(&self.node);
            }
        }
        if let Err(errno) = self.device.close_backing(self.id) {
            tracing::debug!(id = self.id, %errno, "cannot close a backing file");
        }
    }
}

/// Current registrations by node, sharded so that opens of different files do not contend.
#[derive(Default)]
struct Registry(Sharded<Mutex<HashMap<NodeId, Weak<Registration>>>>);

impl Registry {
    fn nodes(&self, node: NodeId) -> &Mutex<HashMap<NodeId, Weak<Registration>>> {
        self.0.by_low_bits(node.0)
    }
}

/// Registers backing files with the kernel.
pub struct Passthrough {
    device: Arc<Device>,
    registry: Arc<Registry>,
    /// Errno of the last registration if it failed, otherwise 0.
    refusal: AtomicI32,
}

impl fmt::Debug for Passthrough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passthrough").finish_non_exhaustive()
    }
}

impl Passthrough {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device, registry: Arc::default(), refusal: AtomicI32::new(0) }
    }

    /// Returns the backing file of `node`: the current one, or `file`, which is registered now.
    ///
    /// The kernel requires all opens of an inode to share one registration. It performs I/O with the credentials of the thread
    /// that registers: **a thread with an effective CAP_FSETID leaves setuid and setgid bits in place when an unprivileged user
    /// writes**, so that is refused here.
    ///
    /// # Errors
    /// EBUSY while another file is in use: serve such an open [directly](crate::Opened::direct) and
    /// [watched](crate::Opened::watched), because the kernel would read and write the other file. EPERM with CAP_FSETID, or
    /// without CAP_SYS_ADMIN; ELOOP where the lower file system is stacked too deep; EINVAL or EISDIR where `file` is not a
    /// regular file; EMFILE and ENFILE.
    pub fn share(&self, node: NodeId, file: BorrowedFd<'_>) -> Result<Backing, Errno> {
        let stat = rustix::fs::fstat(file)?;
        let identity = Some((stat.st_dev, stat.st_ino));
        let mut nodes = self.registry.nodes(node).lock();
        if let Some(held) = nodes.get(&node).and_then(Weak::upgrade) {
            // Its last open may end at this moment, so that dropping `held` unregisters it: that takes the lock.
            drop(nodes);
            return match held.file.is_some() && held.file != identity {
                true => Err(Errno::BUSY),
                false => Ok(Backing(held)),
            };
        }
        if crate::privilege::has_fsetid() {
            return Err(Errno::PERM);
        }
        let opened = self.device.open_backing(file.as_fd());
        self.refusal.store(opened.map_or_else(Errno::raw_os_error, |_| 0), Ordering::Relaxed);
        let id = opened?;
        let registration = Arc::new(Registration {
            id,
            node,
            file: identity,
            device: self.device.clone(),
            registry: Arc::downgrade(&self.registry),
        });
        nodes.insert(node, Arc::downgrade(&registration));
        Ok(Backing(registration))
    }

    /// Reports whether a file has writers, by a descriptor or a mapping. The kernel maps backing files themselves: a mapping
    /// outlives the open, and the request that reports its end. `file` must be open for reading only, and the caller's own
    /// descriptors count: none may be open for writing.
    ///
    /// # Errors
    /// EINVAL where the file system does not support leases.
    pub fn has_writers(file: BorrowedFd<'_>) -> Result<bool, Errno> {
        match crate::lease::read_lease(file) {
            Ok(()) => Ok(false),
            Err(Errno::AGAIN) => Ok(true),
            Err(errno) => Err(errno),
        }
    }

    /// Adopts a registration that an earlier server of this connection made.
    pub(crate) fn adopt(&self, node: NodeId, id: u32) -> Backing {
        let mut nodes = self.registry.nodes(node).lock();
        if let Some(held) = nodes.get(&node).and_then(Weak::upgrade) {
            return Backing(held);
        }
        let registry = Arc::downgrade(&self.registry);
        let registration =
            Arc::new(Registration { id, node, file: None, device: self.device.clone(), registry });
        nodes.insert(node, Arc::downgrade(&registration));
        Backing(registration)
    }

    /// Returns the errno of the last registration if the kernel refused it: ELOOP where the lower file system is stacked too
    /// deep.
    pub fn refusal(&self) -> Option<Errno> {
        match self.refusal.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(Errno::from_raw_os_error(errno)),
        }
    }

    /// Returns the number of registered backing files.
    pub fn len(&self) -> usize {
        self.registry.0.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Reports whether no backing file is registered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const NODE: NodeId = NodeId(7);

    /// The kernel does not know this registration: it refuses to end it, which is only logged.
    fn register(passthrough: &Passthrough, id: u32) -> Backing {
        let (device, registry) = (passthrough.device.clone(), Arc::downgrade(&passthrough.registry));
        let registration = Arc::new(Registration { id, node: NODE, file: Some((0, 0)), device, registry });
        passthrough.registry.nodes(NODE).lock().insert(NODE, Arc::downgrade(&registration));
        Backing(registration)
    }

    impl Backing {
        pub(crate) fn unregistered(node: NodeId) -> Self {
            let (_reader, writer) = rustix::pipe::pipe().unwrap();
            let device = Arc::new(Device::new(writer).unwrap());
            Self(Arc::new(Registration { id: 1, node, file: None, device, registry: Weak::new() }))
        }
    }

    #[test]
    fn a_backing_file_whose_last_open_ends_while_another_version_is_opened_holds_nobody_up() {
        let (_reader, writer) = rustix::pipe::pipe().unwrap();
        let passthrough = Arc::new(Passthrough::new(Arc::new(Device::new(writer).unwrap())));
        let other = std::fs::File::open("/dev/null").unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let (over, is_over) = mpsc::channel();
        // Each side has a thread of its own, which is left behind if it hangs.
        let (opens, is_ended) = (passthrough.clone(), ended.clone());
        let opener = over.clone();
        thread::spawn(move || {
            while !is_ended.load(Ordering::Relaxed) {
                // EPERM too, between two registrations.
                assert!(opens.share(NODE, other.as_fd()).is_err());
            }
            opener.send(()).unwrap();
        });
        thread::spawn(move || {
            for id in 0..200_000 {
                let last = register(&passthrough, id);
                // Sooner or later the registration ends within an open.
                (0..id % 1024).for_each(|_| std::hint::spin_loop());
                drop(last);
            }
            ended.store(true, Ordering::Relaxed);
            over.send(()).unwrap();
        });
        for _ in 0..2 {
            is_over.recv_timeout(Duration::from_secs(60)).expect("the open waits for its own completion");
        }
    }
}
