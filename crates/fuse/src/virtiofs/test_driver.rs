//! A simulated guest: its memory, one queue, and a driver that may misbehave. For tests, and for fuzzing (feature `test-driver`).
#![allow(missing_docs, reason = "the names are those of the virtio specification")]

use std::io;
use std::sync::Arc;

use shunt_fuse_abi::{InHeader, InitIn, Opcode, OutHeader, Wire};
use vhost_user_backend::{VhostUserBackend, VringRwLock, VringT};
use virtio_queue::QueueT;
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use crate::session::guest;
use crate::transport::virtio::device::{Device, Shared};
use crate::transport::virtio::memory::Guest;
use crate::{Config, FileSystem, Profile};

pub const QUEUE_ENTRIES: u64 = 128;
pub const TABLE_ADDRESS: u64 = 0x1000;
pub const AVAILABLE_RING_ADDRESS: u64 = 0x4000;
pub const USED_RING_ADDRESS: u64 = 0x6000;
/// Address of the driver's buffers.
pub const BUFFERS_ADDRESS: u64 = 0x10000;
/// End of the first memory range; a hole of the same size follows.
pub const REGION_BYTES: u64 = 1 << 20;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor as the driver writes it.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    pub start: u64,
    pub length: u32,
    pub flags: u16,
    pub next: u16,
}

/// A guest and its device.
pub struct TestDriver<F: FileSystem> {
    pub(crate) guest: Guest,
    ring: VringRwLock<Guest>,
    pub(crate) device: Shared<guest::Guest<F>>,
    /// Number of chains made available.
    pub available: u16,
}

impl<F: FileSystem> std::fmt::Debug for TestDriver<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestDriver").field("available", &self.available).finish_non_exhaustive()
    }
}

impl<F: FileSystem> TestDriver<F> {
    /// Makes a guest that has not mounted yet. `make` returns the file system of each session.
    pub fn new(make: impl Fn() -> io::Result<F> + Send + Sync + 'static) -> Self {
        let ranges = [
            (GuestAddress(0), REGION_BYTES as usize),
            (GuestAddress(2 * REGION_BYTES), REGION_BYTES as usize),
        ];
        let guest: Guest = GuestMemoryAtomic::new(GuestMemoryMmap::from_ranges(&ranges).unwrap());
        let ring = VringRwLock::new(guest.clone(), QUEUE_ENTRIES as u16).unwrap();
        let config = Config::new(Profile::Passthrough);
        let handler = guest::Guest::new(Box::new(make), Box::new(|_| {}), config);
        let device = Device::new(Arc::new(handler), guest.clone(), 2, 1 << 20, None);
        let mut driver = Self { guest, ring, device: Shared::new(device), available: 0 };
        driver.reset();
        driver
    }

    /// Resets the ring and clears the memory of the rings and requests.
    fn reset(&mut self) {
        self.put(0, &[0; REPLY_ADDRESS as usize]);
        self.ring.get_mut().get_queue_mut().reset();
        self.ring
            .set_queue_info(TABLE_ADDRESS, AVAILABLE_RING_ADDRESS, USED_RING_ADDRESS)
            .expect("the queue lies in guest memory");
        self.ring.set_queue_size(QUEUE_ENTRIES as u16);
        self.ring.set_enabled(true);
        self.ring.set_queue_ready(true);
        self.available = 0;
    }

    /// Makes a guest that has mounted.
    pub fn mounted(make: impl Fn() -> io::Result<F> + Send + Sync + 'static) -> Self {
        let mut driver = Self::new(make);
        driver.mount();
        driver
    }

    /// Reboots the guest, which mounts again.
    pub fn reboot(&mut self) {
        self.settle();
        self.reset();
        self.mount();
    }

    fn mount(&mut self) {
        let init = InitIn { major: 7, minor: 41, flags: u32::MAX, ..Default::default() };
        let (error, body) =
            self.ask(Opcode::Init, 1, 0, init.as_bytes(), 64).expect("the device replies to INIT");
        assert_eq!((error, body.len()), (0, 64));
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.guest.memory().write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub fn get(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.guest.memory().read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    pub fn describe(&self, table: u64, index: u16, it: Descriptor) {
        let mut bytes = it.start.to_le_bytes().to_vec();
        bytes.extend(it.length.to_le_bytes());
        bytes.extend(it.flags.to_le_bytes());
        bytes.extend(it.next.to_le_bytes());
        self.put(table + 16 * u64::from(index), &bytes);
    }

    /// Makes a chain available.
    pub fn offer(&mut self, head: u16) {
        let index = u64::from(self.available) % QUEUE_ENTRIES;
        self.put(AVAILABLE_RING_ADDRESS + 4 + 2 * index, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(AVAILABLE_RING_ADDRESS + 2, &self.available.to_le_bytes());
    }

    pub fn kick(&self) {
        self.device.handle_event(0, EventSet::IN, std::slice::from_ref(&self.ring), 1).unwrap();
    }

    /// Waits until all chains in progress are returned.
    pub fn settle(&self) {
        self.device.stop_vring(1).unwrap();
    }

    pub fn used(&self) -> u16 {
        u16::from_le_bytes(self.get(USED_RING_ADDRESS + 2, 2).try_into().unwrap())
    }

    /// Returns the chain that was returned last, and the length of its reply.
    pub fn last_used(&self) -> (u32, u32) {
        let index = u64::from(self.used().wrapping_sub(1)) % QUEUE_ENTRIES;
        let word = |offset| {
            u32::from_le_bytes(self.get(USED_RING_ADDRESS + 4 + 8 * index + offset, 4).try_into().unwrap())
        };
        (word(0), word(4))
    }

    /// Writes a request of three descriptors: header, argument, room for the reply.
    pub fn lay_out(&self, opcode: Opcode, unique: u64, node: u64, argument: &[u8], room: u32) {
        let length = (InHeader::SIZE + argument.len()) as u32;
        let header =
            InHeader { len: length, opcode: opcode.as_raw(), unique, nodeid: node, ..Default::default() };
        self.put(BUFFERS_ADDRESS, header.as_bytes());
        self.put(BUFFERS_ADDRESS + 0x100, argument);
        let head = Descriptor { start: BUFFERS_ADDRESS, length: InHeader::SIZE as u32, flags: NEXT, next: 1 };
        self.describe(TABLE_ADDRESS, 0, head);
        let flags = if room > 0 { NEXT } else { 0 };
        let length = argument.len() as u32;
        self.describe(
            TABLE_ADDRESS,
            1,
            Descriptor { start: BUFFERS_ADDRESS + 0x100, length, flags, next: 2 },
        );
        self.describe(
            TABLE_ADDRESS,
            2,
            Descriptor { start: REPLY_ADDRESS, length: room, flags: WRITE, next: 0 },
        );
    }

    /// Sends a request and waits; returns error and body of the reply.
    pub fn ask(
        &mut self,
        opcode: Opcode,
        unique: u64,
        node: u64,
        argument: &[u8],
        body: u32,
    ) -> Option<(i32, Vec<u8>)> {
        self.lay_out(opcode, unique, node, argument, OutHeader::SIZE as u32 + body);
        self.offer(0);
        self.kick();
        self.settle();
        let (head, length) = self.last_used();
        assert_eq!((head, self.used()), (0, self.available));
        let reply = self.get(REPLY_ADDRESS, length as usize);
        let header = OutHeader::read_from_prefix(&reply)?.0;
        assert_eq!((header.unique, header.len), (unique, length));
        Some((header.error, reply[OutHeader::SIZE..].to_vec()))
    }
}

/// Address of the buffer for replies.
pub const REPLY_ADDRESS: u64 = BUFFERS_ADDRESS + 0x40000;
