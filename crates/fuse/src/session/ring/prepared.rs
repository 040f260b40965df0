//! The early set-up of io_uring: rings before INIT is answered, so that every refusal is known by then, and queues with pools after
//! it, while the process still has its privileges.

use std::io;
use std::iter;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use shunt_fuse_abi::InitFlags;

use super::errno_of;
use super::ring_pool::RingPool;
use crate::negotiate::{Config, RingBuffers};
use crate::transport::device::Device;
use crate::transport::uring::{MemoryFile, PayloadPool, QueueSizes, Ring};

/// Rings that are set up before the reply to INIT, so that every refusal is known before it.
#[derive(Debug)]
pub(crate) struct PreparedRings {
    pub(super) sizes: QueueSizes,
    /// Rings of the first thread of each queue.
    pub(super) rings: Vec<Ring>,
    /// Rings of all other threads.
    pub(super) pool: RingPool,
    /// How the data of requests may be kept.
    pub(super) buffers: RingBuffers,
    pub(super) detour: Option<Arc<MemoryFile>>,
    /// The buffers of the queues that exist in the kernel, from the first one on. `None` until they are added.
    pub(super) pools: Option<Vec<Arc<PayloadPool>>>,
}

impl PreparedRings {
    /// Sets up the first rings. With `ahead`, the rings of all threads that may ever exist are made now, and none later.
    pub(crate) fn new(max_write: u32, ahead: bool, buffers: RingBuffers) -> io::Result<Self> {
        crate::scheduling::remember();
        let mut sizes = QueueSizes::new(crate::transport::uring::possible_processors()?, max_write);
        let buffers = if sizes.kernel_agrees() { buffers } else { RingBuffers::PerEntry };
        let zero_copy = buffers == RingBuffers::ZeroCopy;
        // A system call filter may allow making rings but not entering them: find that out now.
        let trial = Ring::new(zero_copy)?;
        trial.start()?;
        trial.submit()?;
        let rings = (0..sizes.queues).map(|_| Ring::new(zero_copy)).collect::<io::Result<_>>()?;
        let pool = match ahead {
            true => Self::make_rings_ahead(&mut sizes, zero_copy)?,
            false => RingPool::OnDemand { zero_copy },
        };
        let detour = if zero_copy { Some(MemoryFile::new()?) } else { None };
        Ok(Self { sizes, rings, pool, buffers, detour, pools: None })
    }

    /// Makes the rings of all entries but the first ones, so that no thread lacks a ring while requests wait for an entry; and
    /// [one more](super::have_refused). Where fewer rings can be made, there are fewer entries.
    fn make_rings_ahead(sizes: &mut QueueSizes, zero_copy: bool) -> io::Result<RingPool> {
        let queues = usize::from(sizes.queues);
        // Half of all descriptors are reserved for other uses.
        let room = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize / 2);
        let count = 1 + queues * (sizes.max_entries - 1);
        let first = Ring::new(zero_copy)?;
        let rings: Vec<_> = iter::once(first)
            .chain(iter::repeat_with(|| Ring::new(zero_copy)).map_while(Result::ok))
            .take(count.min(room))
            .collect();
        if rings.len() < count {
            sizes.max_entries = 1 + (rings.len() - 1) / queues;
            tracing::info!(
                max_entries = sizes.max_entries,
                "cannot create all io_uring rings: fewer requests per processor are served in parallel"
            );
        }
        Ok(RingPool::ahead(rings))
    }

    /// Returns how the data of requests is to be kept.
    pub(crate) fn buffers(&self) -> RingBuffers {
        self.buffers
    }

    /// Adapts the configuration to these rings.
    pub(crate) fn adapt(&self, config: &Config) -> Config {
        let mut config = config.clone().request(InitFlags::OVER_IO_URING).max_write(self.sizes.max_write);
        config.rings_ready = true;
        config
    }

    /// Creates the kernel's queues with their pools of buffers. Only once, when INIT has been answered and the mount exists; queues
    /// without a pool are created with their first entry. Zero copy takes CAP_SYS_ADMIN here, and only here.
    pub(crate) fn add_queues(&mut self, device: &Device) {
        if self.buffers == RingBuffers::PerEntry || self.pools.is_some() {
            return;
        }
        let mut pools = Vec::new();
        let added = self.add_pooled_queues(device, &mut pools);
        self.pools = Some(pools);
        if let Err(errno) = added {
            tracing::warn!(%errno, "the kernel refuses buffer pools: io_uring copies the data of requests");
            self.buffers = RingBuffers::PerEntry;
        }
    }

    fn add_pooled_queues(&self, device: &Device, pools: &mut Vec<Arc<PayloadPool>>) -> Result<(), Errno> {
        // Any ring may add queues: they belong to the connection.
        let mut ring = Ring::new(false).map_err(errno_of)?;
        ring.start().map_err(errno_of)?;
        for id in 0..self.sizes.queues {
            let pool = PayloadPool::new(self.sizes.payload(), self.sizes.max_entries).map_err(errno_of)?;
            ring.add_queue(device, id, self.buffers == RingBuffers::ZeroCopy)?;
            // If this fails for a zero-copy queue, its entries are refused, and `/dev/fuse` serves.
            ring.add_pool(device, id, &pool)?;
            pools.push(pool);
        }
        Ok(())
    }
}
