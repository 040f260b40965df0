//! Ioctls of the kernel module and of loop devices. Their structures are those of `kernel/extmap/include/extmap.h` and
//! `linux/loop.h`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const fn call(direction: u32, kind: u32, number: u32, size: usize) -> libc::Ioctl {
    ((direction << 30) | ((size as u32) << 16) | (kind << 8) | number) as libc::Ioctl
}

const IOC_WRITE: u32 = 1;
const IOC_READ: u32 = 2;

const BIND: libc::Ioctl = call(IOC_READ | IOC_WRITE, 0xea, 1, size_of::<Bind>());
const FILE: libc::Ioctl = call(IOC_READ | IOC_WRITE, 0xea, 2, size_of::<NewFile>());
const PUSH: libc::Ioctl = call(IOC_WRITE, 0xea, 3, size_of::<Push>());
const CUT: libc::Ioctl = call(IOC_READ | IOC_WRITE, 0xea, 4, size_of::<Cut>());
const SETTLE: libc::Ioctl = call(IOC_READ | IOC_WRITE, 0xea, 5, size_of::<Settle>());
const REPLY: libc::Ioctl = call(IOC_WRITE, 0xea, 6, size_of::<Reply>());
const FREED: libc::Ioctl = call(IOC_WRITE, 0xea, 7, size_of::<RawFd>());

const LOOP_CONFIGURE: libc::Ioctl = 0x4c0a;
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4c82;

pub(crate) const PROTOCOL_VERSION: u32 = 2;
/// Maximum number of extents in one call.
pub(crate) const MAX_PUSHED: usize = 4096;
pub(crate) const UNWRITTEN: u32 = 1;
pub(crate) const WRITABLE: u32 = 1;
pub(crate) const ALLOCATE: u32 = 1;
pub(crate) const SYNC: u32 = 2;
pub(crate) const CUT_RANGE: u32 = 1;
pub(crate) const CUT_HOLD: u32 = 2;
pub(crate) const CUT_TAIL: u32 = 4;
pub(crate) const CUT_GROW: u32 = 8;
const SETTLE_COMPLETED_ONLY: u32 = 1;
/// Maximum number of ranges that one call returns.
const MAX_RANGES: usize = 1024;

#[repr(C)]
pub(crate) struct Bind {
    pub(crate) version: u32,
    pub(crate) device: RawFd,
    pub(crate) block_size: u32,
    pub(crate) unused: u32,
    pub(crate) device_size: u64,
}

#[repr(C)]
struct NewFile {
    size: u64,
    flags: u32,
    unused: u32,
    cookie: u64,
}

#[repr(C)]
struct Cut {
    fd: RawFd,
    flags: u32,
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawRange {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[repr(C)]
struct Settle {
    fd: RawFd,
    count: u32,
    ranges: u64,
    size: u64,
    flags: u32,
    users: u32,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct RawRequest {
    pub(crate) id: u64,
    pub(crate) file: u64,
    pub(crate) kind: u32,
    unused: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[repr(C)]
struct Reply {
    id: u64,
    error: i32,
    unused: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RawExtent {
    pub(crate) offset: u64,
    pub(crate) device: u64,
    pub(crate) length: u64,
    pub(crate) flags: u32,
    pub(crate) unused: u32,
}

#[repr(C)]
struct Push {
    fd: RawFd,
    count: u32,
    extents: u64,
}

/// `struct loop_config`.
#[repr(C)]
pub(crate) struct LoopConfig {
    pub(crate) fd: u32,
    pub(crate) block_size: u32,
    location: [u64; 5],
    numbers: [u32; 3],
    pub(crate) flags: u32,
    names: [u8; 160],
    rest: [u64; 10],
}

// Sizes and offsets in the kernel's headers.
const _: () = assert!(size_of::<LoopConfig>() == 304 && std::mem::offset_of!(LoopConfig, flags) == 60);
const _: () = assert!(size_of::<Bind>() == 24 && size_of::<RawExtent>() == 32 && size_of::<Push>() == 16);

impl LoopConfig {
    pub(crate) fn new(file: BorrowedFd<'_>, flags: u32) -> Self {
        let fd = file.as_raw_fd().cast_unsigned();
        Self { fd, block_size: 0, location: [0; 5], numbers: [0; 3], flags, names: [0; 160], rest: [0; 10] }
    }
}

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn bind(control: BorrowedFd<'_>, bind: &mut Bind) -> io::Result<()> {
    // SAFETY: reads and writes the structure, whose size is encoded in the ioctl number.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), BIND, &raw mut *bind) }).map(drop)
}

/// Creates a file. Returns it with the number that identifies it in requests.
pub(crate) fn new_file(control: BorrowedFd<'_>, size: u64, flags: u32) -> io::Result<(OwnedFd, u64)> {
    let mut file = NewFile { size, flags, unused: 0, cookie: 0 };
    // SAFETY: reads and writes the structure, whose size is encoded in the ioctl number.
    let fd = checked(unsafe { libc::ioctl(control.as_raw_fd(), FILE, &raw mut file) })?;
    // SAFETY: the descriptor was just created and has no other owner.
    Ok((unsafe { OwnedFd::from_raw_fd(fd) }, file.cookie))
}

/// Unmaps a range of a file according to the flags. Returns where it begins.
pub(crate) fn cut(
    control: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    flags: u32,
    (offset, length): (u64, u64),
) -> io::Result<u64> {
    let mut cut = Cut { fd: file.as_raw_fd(), flags, offset, length };
    // SAFETY: reads and writes the structure, whose size is encoded in the ioctl number.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), CUT, &raw mut cut) })?;
    Ok(cut.offset)
}

pub(crate) fn freed(control: BorrowedFd<'_>, file: BorrowedFd<'_>) -> io::Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: reads the number.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), FREED, &raw const fd) }).map(drop)
}

/// State of a file after a settle.
pub(crate) struct Settled {
    pub(crate) size: u64,
    pub(crate) users: u32,
    /// There may be more ranges.
    pub(crate) more: bool,
}

/// Appends written ranges to `written`. With `completed_only`, dirty pages are not written first.
pub(crate) fn settle(
    control: BorrowedFd<'_>,
    file: BorrowedFd<'_>,
    completed_only: bool,
    written: &mut Vec<RawRange>,
) -> io::Result<Settled> {
    let mut ranges = [RawRange::default(); MAX_RANGES];
    let count = MAX_RANGES as u32;
    let flags = if completed_only { SETTLE_COMPLETED_ONLY } else { 0 };
    let ranges_at = ranges.as_mut_ptr() as u64;
    let mut settle = Settle { fd: file.as_raw_fd(), count, ranges: ranges_at, size: 0, flags, users: 0 };
    // SAFETY: reads and writes the structure, and writes at most `count` ranges.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), SETTLE, &raw mut settle) })?;
    written.extend(ranges.iter().take(settle.count as usize));
    Ok(Settled { size: settle.size, users: settle.users, more: settle.count == count })
}

/// Returns the next request, or `None` if none is pending.
pub(crate) fn next_request(control: BorrowedFd<'_>) -> io::Result<Option<RawRequest>> {
    let mut request = RawRequest::default();
    let room = size_of::<RawRequest>();
    // SAFETY: writes the structure, for which every bit pattern is valid.
    let count = unsafe { libc::read(control.as_raw_fd(), (&raw mut request).cast(), room) };
    match count {
        0.. => Ok(Some(request)),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}

pub(crate) fn reply(control: BorrowedFd<'_>, id: u64, error: i32) -> io::Result<()> {
    let reply = Reply { id, error, unused: 0 };
    // SAFETY: reads the structure, whose size is encoded in the ioctl number.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), REPLY, &raw const reply) }).map(drop)
}

/// Maps at most [`MAX_PUSHED`] extents, a limit that the module checks.
pub(crate) fn push(control: BorrowedFd<'_>, file: BorrowedFd<'_>, extents: &[RawExtent]) -> io::Result<()> {
    let count = u32::try_from(extents.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let push = Push { fd: file.as_raw_fd(), count, extents: extents.as_ptr() as u64 };
    // SAFETY: reads the structure, and `count` extents.
    checked(unsafe { libc::ioctl(control.as_raw_fd(), PUSH, &raw const push) }).map(drop)
}

/// Returns the number of a loop device that was unused a moment ago.
pub(crate) fn free_loop(control: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: the call has no arguments.
    let number = checked(unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) })?;
    Ok(number.cast_unsigned())
}

pub(crate) fn configure_loop(device: BorrowedFd<'_>, config: &LoopConfig) -> io::Result<()> {
    // SAFETY: reads the structure, whose size is that of the kernel's.
    checked(unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const *config) }).map(drop)
}
