//! A guest in a box: its memory, one queue, and a driver that may lie.

mod hostile;
mod requests;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use shunt_fuse_abi::{InHeader, InitIn, Opcode, OutHeader};
use vhost_user_backend::{VhostUserBackend, VringRwLock, VringT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use zerocopy::{FromBytes, IntoBytes};

use super::device::{Device, Shared};
use super::memory::Guest;
use crate::session::guest;
use crate::{
    Attributes, Config, Data, Entry, Errno, Expiry, FileHandle, FileRange, FileSystem, Name, NodeId, Profile,
    ReadArgs, Request, WriteArgs, WriteData,
};

const QUEUE: u64 = 128;
const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x6000;
/// Buffers of the driver.
const BUFFERS: u64 = 0x10000;
/// No memory from here on, for as much again.
const END: u64 = 1 << 20;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// One file, `f`, whose inode is 2.
struct OneFile(Arc<OwnedFd>);

impl FileSystem for OneFile {
    async fn lookup(&self, _: &Request<'_>, _: NodeId, name: Name<'_>) -> Result<Entry, Errno> {
        match name.as_bytes() {
            b"f" => Ok(Entry::new(NodeId(2), file(), Expiry::FOREVER)),
            _ => Err(Errno::NOENT),
        }
    }

    async fn getattr(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((file(), Expiry::FOREVER))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        Ok(Data::File(FileRange { file: self.0.clone(), offset: args.offset, length: args.size }))
    }

    async fn write(
        &self,
        _: &Request<'_>,
        _: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        if args.offset > 1 << 20 {
            return Err(Errno::FBIG);
        }
        data.write_to(self.0.as_fd(), args.offset)
    }

    async fn fsync(&self, request: &Request<'_>, _: NodeId, _: FileHandle, _: bool) -> Result<(), Errno> {
        request.interrupted().await;
        Err(Errno::INTR)
    }
}

fn file() -> Attributes {
    Attributes { ino: 2, mode: 0o100_644, nlink: 1, ..Attributes::default() }
}

/// A descriptor as the driver writes it.
#[derive(Debug, Clone, Copy)]
struct Descriptor {
    start: u64,
    length: u32,
    flags: u16,
    next: u16,
}

struct Rig {
    guest: Guest,
    ring: VringRwLock<Guest>,
    device: Shared<guest::Guest<OneFile>>,
    content: Arc<OwnedFd>,
    available: u16,
}

impl Rig {
    fn new() -> Self {
        let ranges = [(GuestAddress(0), END as usize), (GuestAddress(2 * END), END as usize)];
        let guest: Guest = GuestMemoryAtomic::new(GuestMemoryMmap::from_ranges(&ranges).unwrap());
        let ring = VringRwLock::new(guest.clone(), QUEUE as u16).unwrap();
        ring.set_queue_info(TABLE, AVAILABLE, USED).unwrap();
        ring.set_queue_size(QUEUE as u16);
        ring.set_enabled(true);
        ring.set_queue_ready(true);
        let content: Arc<OwnedFd> =
            Arc::new(rustix::fs::memfd_create("content", MemfdFlags::CLOEXEC).unwrap());
        let shown = content.clone();
        let make = move || -> io::Result<OneFile> { Ok(OneFile(shown.clone())) };
        let config = Config::new(Profile::Passthrough);
        let handler = guest::Guest::new(Box::new(make), Box::new(|_| {}), config);
        let device = Device::new(Arc::new(handler), guest.clone(), 2, 1 << 20, None);
        Self { guest, ring, device: Shared::new(device), content, available: 0 }
    }

    /// One that a guest has mounted.
    fn mounted() -> Self {
        let mut guest = Self::new();
        let init = InitIn { major: 7, minor: 41, flags: u32::MAX, ..Default::default() };
        let (error, body) = guest.ask(Opcode::Init, 1, 0, init.as_bytes(), 64).expect("INIT is answered");
        assert_eq!((error, body.len()), (0, 64));
        guest
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.guest.memory().write_slice(bytes, GuestAddress(at)).unwrap();
    }

    fn get(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.guest.memory().read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    fn describe(&self, table: u64, index: u16, it: Descriptor) {
        let mut bytes = it.start.to_le_bytes().to_vec();
        bytes.extend(it.length.to_le_bytes());
        bytes.extend(it.flags.to_le_bytes());
        bytes.extend(it.next.to_le_bytes());
        self.put(table + 16 * u64::from(index), &bytes);
    }

    /// Makes a chain available.
    fn offer(&mut self, head: u16) {
        let place = u64::from(self.available) % QUEUE;
        self.put(AVAILABLE + 4 + 2 * place, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    fn kick(&self) {
        self.device.handle_event(0, EventSet::IN, std::slice::from_ref(&self.ring), 1).unwrap();
    }

    /// Waits until all that was taken is given back.
    fn settle(&self) {
        self.device.stop_vring(1).unwrap();
    }

    fn used(&self) -> u16 {
        u16::from_le_bytes(self.get(USED + 2, 2).try_into().unwrap())
    }

    /// The chain that was given back last, and bytes of its reply.
    fn last_used(&self) -> (u32, u32) {
        let place = u64::from(self.used().wrapping_sub(1)) % QUEUE;
        let word =
            |offset| u32::from_le_bytes(self.get(USED + 4 + 8 * place + offset, 4).try_into().unwrap());
        (word(0), word(4))
    }

    /// Lays out a request in three descriptors: header, argument, room for the reply.
    fn lay_out(&self, opcode: Opcode, unique: u64, node: u64, argument: &[u8], room: u32) {
        let length = (InHeader::SIZE + argument.len()) as u32;
        let header =
            InHeader { len: length, opcode: opcode.as_raw(), unique, nodeid: node, ..Default::default() };
        self.put(BUFFERS, header.as_bytes());
        self.put(BUFFERS + 0x100, argument);
        let head = Descriptor { start: BUFFERS, length: InHeader::SIZE as u32, flags: NEXT, next: 1 };
        self.describe(TABLE, 0, head);
        let flags = if room > 0 { NEXT } else { 0 };
        let length = argument.len() as u32;
        self.describe(TABLE, 1, Descriptor { start: BUFFERS + 0x100, length, flags, next: 2 });
        self.describe(TABLE, 2, Descriptor { start: REPLY, length: room, flags: WRITE, next: 0 });
    }

    /// Sends a request and waits; gives error and body of the reply.
    fn ask(
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
        let reply = self.get(REPLY, length as usize);
        let header = OutHeader::read_from_prefix(&reply).ok()?.0;
        assert_eq!((header.unique, header.len), (unique, length));
        Some((header.error, reply[OutHeader::SIZE..].to_vec()))
    }
}

/// Where replies are to go.
const REPLY: u64 = BUFFERS + 0x40000;
