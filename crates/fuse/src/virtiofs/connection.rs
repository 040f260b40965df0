//! One connection of an emulator: its messages (vhost-user) set up the guest's memory and the queues, each of which is then served
//! by a thread of its own.

use std::fs::File;
use std::io;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use vhost_user_backend::{VhostUserBackend, VringRwLock, VringT};
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;
use vm_memory::{GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap, GuestRegionMmap};

use super::worker::Worker;
use crate::transport::virtio::inflight::{self, InflightRegion};
use crate::transport::virtio::memory::Guest;
use crate::transport::virtio::{Handler, MAX_CHAINS, MAX_QUEUES, Shared};

/// Maximum number of regions of memory: what vhost in the kernel has room for.
const MAX_MEMORY_REGIONS: u64 = 509;

/// The part of the emulator's address space that shows a region of the guest's memory.
#[derive(Debug, Clone, Copy)]
struct Translation {
    emulator: u64,
    guest: u64,
    bytes: u64,
}

/// A queue as the emulator set it up.
struct QueueSetup {
    ring: VringRwLock<Guest>,
    kick: Option<Arc<File>>,
    is_enabled: bool,
    /// Served since it was stopped last, or since the connection began.
    is_started: bool,
    worker: Option<Worker>,
}

/// The state of a connection.
pub(super) struct Connection<H: Handler> {
    device: Shared<H>,
    memory: Guest,
    translations: Vec<Translation>,
    queues: Vec<QueueSetup>,
    inflight: Option<Arc<InflightRegion>>,
}

impl<H: Handler> Connection<H> {
    /// Makes the state of a new connection. `memory` is the one of the device.
    ///
    /// # Errors
    /// The rings cannot be made.
    pub(super) fn new(device: Shared<H>, memory: Guest) -> io::Result<Self> {
        let ring = || VringRwLock::new(memory.clone(), MAX_CHAINS as u16).map_err(io::Error::other);
        let queue =
            |ring| QueueSetup { ring, kick: None, is_enabled: false, is_started: false, worker: None };
        let queues = (0..MAX_QUEUES).map(|_| ring().map(queue)).collect::<io::Result<_>>()?;
        Ok(Self { device, memory, translations: Vec::new(), queues, inflight: None })
    }

    /// Stops all queues; their chains in progress are finished by their threads.
    pub(super) fn stop(&mut self) {
        for queue in &mut self.queues {
            queue.ring.set_queue_ready(false);
            queue.worker = None;
        }
    }

    fn queue(&mut self, index: usize) -> Result<&mut QueueSetup> {
        self.queues.get_mut(index).ok_or(Error::InvalidParam)
    }

    /// Starts or stops the thread of a queue, as its settings demand.
    fn update(&mut self, index: usize) -> Result<()> {
        let queue = self.queues.get_mut(index).ok_or(Error::InvalidParam)?;
        let Some(kick) = queue.kick.clone().filter(|_| queue.is_enabled) else {
            queue.ring.set_queue_ready(false);
            queue.worker = None;
            return Ok(());
        };
        if queue.worker.is_some() {
            return Ok(());
        }
        let mut is_continued = false;
        if !queue.is_started {
            let used = queue.ring.queue_used_idx().map_err(|_| Error::InvalidParam)?;
            queue.ring.set_queue_next_used(used);
            let entries = virtio_queue::QueueT::size(queue.ring.get_ref().get_queue());
            let inflight = self.inflight.as_ref().and_then(|region| {
                let part = region.queue(index, entries);
                if part.is_none() {
                    tracing::warn!(queue = index, "the emulator's memory for requests in flight has no room");
                }
                part
            });
            is_continued = self.device.track(index, &queue.ring, inflight);
            queue.is_started = true;
        }
        queue.ring.set_queue_ready(true);
        let (device, ring) = (self.device.clone(), queue.ring.clone());
        let worker = Worker::start(index, kick, is_continued, move |is_first| {
            if is_first && is_continued {
                device.notify(index);
            }
            let set = vmm_sys_util::epoll::EventSet::IN;
            let _ = device.handle_event(0, set, std::slice::from_ref(&ring), index);
        });
        queue.worker = Some(worker.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    /// Makes the settings of a queue by which the other side is notified, while nothing uses them.
    fn reconnect(&mut self, index: usize, set: impl FnOnce(&mut QueueSetup)) -> Result<()> {
        let queue = self.queue(index)?;
        queue.ring.set_queue_ready(false);
        queue.worker = None;
        set(queue);
        self.update(index)
    }

    fn set_enabled(&mut self, index: usize, is_enabled: bool) -> Result<()> {
        let queue = self.queue(index)?;
        queue.is_enabled = is_enabled;
        queue.ring.set_enabled(is_enabled);
        self.update(index)
    }

    fn guest_address(&self, emulator: u64) -> Result<u64> {
        let within =
            |part: &&Translation| emulator.checked_sub(part.emulator).is_some_and(|at| at < part.bytes);
        let part = self.translations.iter().find(within).ok_or(Error::InvalidParam)?;
        (emulator - part.emulator).checked_add(part.guest).ok_or(Error::InvalidParam)
    }

    fn map(region: &VhostUserMemoryRegion, file: File) -> Result<(GuestRegionMmap, Translation)> {
        let mapped = GuestRegionMmap::new(region.mmap_region(file)?, GuestAddress(region.guest_phys_addr));
        let (emulator, guest, bytes) = (region.user_addr, region.guest_phys_addr, region.memory_size);
        Ok((mapped.ok_or(Error::InvalidParam)?, Translation { emulator, guest, bytes }))
    }

    fn replace_memory(&self, memory: GuestMemoryMmap) {
        self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner).replace(memory);
    }
}

fn unsupported<T>() -> Result<T> {
    Err(Error::InvalidOperation("not supported"))
}

impl<H: Handler> VhostUserBackendReqHandlerMut for Connection<H> {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        // The specification recommends to disable all queues.
        (0..self.queues.len()).try_for_each(|index| self.set_enabled(index, false))
    }

    fn reset_device(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.device.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.device.features() != 0 {
            return Err(Error::InvalidParam);
        }
        let has_event_index = features & 1 << VIRTIO_RING_F_EVENT_IDX != 0;
        self.queues.iter().for_each(|queue| queue.ring.set_queue_event_idx(has_event_index));
        // Without this feature there are no messages that enable queues.
        if features & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            return (0..self.queues.len()).try_for_each(|index| self.set_enabled(index, true));
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let mapped = regions.iter().zip(files).map(|(region, file)| Self::map(region, file));
        let (mapped, translations): (Vec<_>, Vec<_>) =
            mapped.collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let memory = GuestMemoryMmap::from_regions(mapped).map_err(|_| Error::InvalidParam)?;
        self.replace_memory(memory);
        self.translations = translations;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, entries: u32) -> Result<()> {
        let size = u16::try_from(entries).ok().filter(|size| size.is_power_of_two());
        let size = size.filter(|size| usize::from(*size) <= MAX_CHAINS).ok_or(Error::InvalidParam)?;
        self.queue(index as usize)?.ring.set_queue_size(size);
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _: VhostUserVringAddrFlags,
        descriptors: u64,
        used: u64,
        available: u64,
        _: u64,
    ) -> Result<()> {
        let [descriptors, available, used] = [descriptors, available, used].map(|at| self.guest_address(at));
        let ring = &self.queue(index as usize)?.ring;
        ring.set_queue_info(descriptors?, available?, used?).map_err(|_| Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.queue(index as usize)?.ring.set_queue_next_avail(base as u16);
        Ok(())
    }

    /// Stops the queue: when this returns, the guest's memory is not accessed on its behalf any more.
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let device = self.device.clone();
        let queue = self.queue(index as usize)?;
        queue.ring.set_queue_ready(false);
        (queue.kick, queue.worker) = (None, None);
        // Requests that an earlier daemon took and did not return.
        let set = vmm_sys_util::epoll::EventSet::IN;
        let _ = device.handle_event(0, set, std::slice::from_ref(&queue.ring), index as usize);
        device.stop_vring(index).map_err(Error::ReqHandlerError)?;
        queue.is_started = false;
        device.untrack(index as usize);
        queue.ring.set_call(None);
        Ok(VhostUserVringState::new(index, queue.ring.queue_next_avail().into()))
    }

    fn set_vring_kick(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.reconnect(index.into(), |queue| queue.kick = file.map(Arc::new))
    }

    fn set_vring_call(&mut self, index: u8, file: Option<File>) -> Result<()> {
        let queue = self.queue(index.into())?;
        queue.ring.set_call(file);
        if queue.is_started {
            // Replies may have been published before there was a way to say so.
            self.device.notify(index.into());
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, file: Option<File>) -> Result<()> {
        self.queue(index.into())?.ring.set_err(file);
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(self.device.protocol_features())
    }

    fn set_protocol_features(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(MAX_QUEUES as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.set_enabled(index as usize, enable)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(self.device.get_config(offset, size))
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        unsupported()
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        unsupported()
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        unsupported()
    }

    /// Makes the memory in which requests in flight are recorded. The emulator keeps it, and passes it to the next daemon.
    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        let (queues, entries) = (usize::from(wanted.num_queues), wanted.queue_size);
        if queues == 0 || queues > MAX_QUEUES || entries == 0 || usize::from(entries) > MAX_CHAINS {
            return Err(Error::InvalidParam);
        }
        let file = inflight::create(queues, entries).map_err(Error::ReqHandlerError)?;
        let bytes = inflight::region_bytes(queues, entries) as u64;
        Ok((VhostUserInflight::new(bytes, 0, wanted.num_queues, entries), file))
    }

    fn set_inflight_fd(&mut self, region: &VhostUserInflight, file: File) -> Result<()> {
        let (queues, entries) = (usize::from(region.num_queues), region.queue_size);
        if queues > MAX_QUEUES || usize::from(entries) > MAX_CHAINS {
            return Err(Error::InvalidParam);
        }
        let mapped = InflightRegion::map(file, region.mmap_offset, queues, entries);
        self.inflight = Some(mapped.map_err(Error::ReqHandlerError)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_MEMORY_REGIONS)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        if self.translations.len() as u64 >= MAX_MEMORY_REGIONS {
            return Err(Error::InvalidParam);
        }
        let (mapped, translation) = Self::map(region, file)?;
        let memory = self.memory.memory().insert_region(Arc::new(mapped));
        self.replace_memory(memory.map_err(|_| Error::InvalidParam)?);
        self.translations.push(translation);
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let start = GuestAddress(region.guest_phys_addr);
        let removed = self.memory.memory().remove_region(start, region.memory_size);
        self.replace_memory(removed.map_err(|_| Error::InvalidParam)?.0);
        self.translations.retain(|part| part.guest != region.guest_phys_addr);
        Ok(())
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        unsupported()
    }

    fn check_device_state(&mut self) -> Result<()> {
        unsupported()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        unsupported()
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        unsupported()
    }
}

impl<H: Handler> Drop for Connection<H> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The memory of a device before its emulator has said where it is.
pub(super) fn no_memory() -> Guest {
    GuestMemoryAtomic::new(GuestMemoryMmap::new())
}
