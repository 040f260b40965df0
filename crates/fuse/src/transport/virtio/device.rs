//! The virtio device that a guest sees: its queues and features, and the dispatch of requests to threads. A queue's own thread
//! serves a short request if no other is pending; all others go to a thread pool.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use shunt_fuse_abi::{InHeader, Opcode};
use vhost::vhost_user::message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use vhost_user_backend::{VhostUserBackend, VringRwLock};
use virtio_bindings::bindings::virtio_config::VIRTIO_F_VERSION_1;
use virtio_bindings::bindings::virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier};

use super::exchange::{Exchange, InflightIds, MAX_REQUEST_BYTES};
use super::inflight::InflightQueue;
use super::memory::Guest;
use super::pool::Pool;
use super::queue::Queue;
use crate::transport::Channel;
use crate::transport::buffer::BufferPool;
use crate::transport::message::Message;

/// Number of queues that a guest may use: request queues, for example one for each of its CPUs, and one high-priority queue for
/// what must not wait behind requests.
pub(crate) const MAX_QUEUES: usize = 1 + 16;

/// Maximum number of chains in a queue.
pub(crate) const MAX_CHAINS: usize = 1024;

/// Length of the device's tag in bytes.
pub(crate) const TAG_BYTES: usize = 36;

/// Handles the requests of a guest.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Handles one request; replies through `channel`.
    fn handle(&self, channel: Arc<dyn Channel>, header: &InHeader, message: Message);

    /// Called for a message that is not a valid request.
    fn malformed(&self);
}

/// The device.
pub(crate) struct Device<H> {
    handler: Arc<H>,
    guest: Guest,
    queues: Vec<Arc<Queue>>,
    pool: Pool,
    buffers: Arc<BufferPool>,
    numbers: Arc<InflightIds>,
    max_write: u32,
    /// The tag, where the emulator does not set one itself.
    tag: Option<[u8; TAG_BYTES]>,
    failed: OnceLock<()>,
}

impl<H: Handler> Device<H> {
    pub(crate) fn new(
        handler: Arc<H>,
        guest: Guest,
        threads: usize,
        max_write: u32,
        tag: Option<[u8; TAG_BYTES]>,
    ) -> Self {
        Self {
            handler,
            guest,
            queues: (0..MAX_QUEUES).map(|_| Arc::default()).collect(),
            pool: Pool::new(threads),
            buffers: BufferPool::new(MAX_REQUEST_BYTES, false),
            numbers: Arc::default(),
            max_write,
            tag,
            failed: OnceLock::new(),
        }
    }

    /// Processes all chains of a queue; returns whether there were any.
    fn empty(self: &Arc<Self>, queue: &Arc<Queue>) -> bool {
        let mut any = false;
        while let Some((chain, more)) = queue.take(&self.guest) {
            any = true;
            let exchange = Exchange::new(queue.clone(), chain, self.numbers.clone());
            // A hand-over takes longer than most requests; but while others are pending they must not wait for this one.
            if !more && exchange.opcode().is_some_and(is_short) {
                self.serve(&exchange);
                continue;
            }
            let device = self.clone();
            self.pool.run(Box::new(move || device.serve(&exchange)));
            if !self.pool.has_threads() {
                self.failed.get_or_init(|| tracing::error!("cannot start any thread for the requests of a guest: the guest hangs; raise the limit of threads and mount again"));
            }
        }
        any
    }

    fn serve(&self, exchange: &Arc<Exchange>) {
        match exchange.receive(&self.buffers, self.max_write) {
            Ok((header, message)) => {
                // Handlers are caught where they run; this covers calls without a reply (FORGET).
                let handle = AssertUnwindSafe(|| self.handler.handle(exchange.clone(), &header, message));
                if catch_unwind(handle).is_err() {
                    tracing::error!(request = header.unique, "handler of a request without a reply panicked");
                }
            }
            Err(errno) => {
                self.handler.malformed();
                tracing::warn!(%errno, "malformed request of a guest: replied EINVAL");
                exchange.reply(exchange.unique(), Err(Errno::INVAL), &[]).ok();
            }
        }
    }
}

/// Reports whether a request occupies a thread only briefly.
fn is_short(opcode: Opcode) -> bool {
    use Opcode::{
        BatchForget, Flush, Forget, Getattr, Getxattr, Interrupt, Listxattr, Lookup, Open, Opendir, Read,
        Readdir, Readdirplus, Readlink, Release, Releasedir, Statfs, Statx, Write,
    };
    matches!(
        opcode,
        BatchForget
            | Flush
            | Forget
            | Getattr
            | Getxattr
            | Interrupt
            | Listxattr
            | Lookup
            | Open
            | Opendir
            | Read
            | Readdir
            | Readdirplus
            | Readlink
            | Release
            | Releasedir
            | Statfs
            | Statx
            | Write
    )
}

/// The device as an implementation of the vhost-user backend trait.
pub(crate) struct Shared<H>(Arc<Device<H>>);

impl<H> Clone for Shared<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> Shared<H> {
    pub(crate) fn new(device: Device<H>) -> Self {
        Self(Arc::new(device))
    }
}

impl<H: Handler> Shared<H> {
    /// Begins to record the chains of a ring that is about to be started. Returns whether an earlier daemon served it.
    pub(crate) fn track(
        &self,
        index: usize,
        ring: &VringRwLock<Guest>,
        inflight: Option<InflightQueue>,
    ) -> bool {
        self.0.queues.get(index).is_some_and(|queue| queue.track(ring, inflight))
    }

    /// Ends the record of a queue that was stopped.
    pub(crate) fn untrack(&self, index: usize) {
        if let Some(queue) = self.0.queues.get(index) {
            queue.untrack();
        }
    }

    /// Notifies the guest of replies in a queue that it may not know.
    pub(crate) fn notify(&self, index: usize) {
        if let Some(queue) = self.0.queues.get(index) {
            queue.notify();
        }
    }
}

impl<H: Handler> VhostUserBackend for Shared<H> {
    type Bitmap = ();
    type Vring = VringRwLock<Guest>;

    fn num_queues(&self) -> usize {
        MAX_QUEUES
    }

    fn max_queue_size(&self) -> usize {
        MAX_CHAINS
    }

    fn features(&self) -> u64 {
        1 << VIRTIO_F_VERSION_1
            | 1 << VIRTIO_RING_F_INDIRECT_DESC
            | 1 << VIRTIO_RING_F_EVENT_IDX
            | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        let features = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS;
        match self.0.tag {
            Some(_) => features | VhostUserProtocolFeatures::CONFIG,
            None => features,
        }
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let mut space = [0; TAG_BYTES + 4];
        space[..TAG_BYTES].copy_from_slice(&self.0.tag.unwrap_or([0; TAG_BYTES]));
        space[TAG_BYTES..].copy_from_slice(&(MAX_QUEUES as u32 - 1).to_le_bytes());
        let start = offset as usize;
        let end = start.saturating_add(size as usize);
        space.get(start..end).unwrap_or_default().to_vec()
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn update_memory(&self, _memory: Guest) -> io::Result<()> {
        Ok(())
    }

    /// One thread for each queue.
    fn queues_per_thread(&self) -> Vec<u64> {
        (0..MAX_QUEUES).map(|queue| 1 << queue).collect()
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn handle_event(
        &self,
        _event: u16,
        _set: EventSet,
        rings: &[VringRwLock<Guest>],
        thread: usize,
    ) -> io::Result<()> {
        // An error would end the queue's thread, and with it the queue.
        let (Some(queue), Some(ring)) = (self.0.queues.get(thread), rings.first()) else { return Ok(()) };
        queue.bind(ring);
        // A ring that claims to be nonempty, and was empty twice, is not waited for.
        let mut vain = 0;
        while vain < 2 {
            queue.set_kicks(false);
            vain = if self.0.empty(queue) { 0 } else { vain + 1 };
            if !queue.set_kicks(true) {
                break;
            }
        }
        Ok(())
    }

    /// The guest, or its emulator, is about to reclaim its memory.
    fn stop_vring(&self, index: u32) -> io::Result<()> {
        if let Some(queue) = self.0.queues.get(index as usize) {
            queue.drain();
        }
        Ok(())
    }
}
