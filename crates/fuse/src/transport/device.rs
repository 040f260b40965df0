//! `/dev/fuse`, or a socket instead: a descriptor that returns one request per read and takes one reply per write.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::io::Errno;
use shunt_fuse_abi::notify::Notification;
use shunt_fuse_abi::{BackingMap, OutHeader, Wire};

/// Maximum size of a message that is assembled in one buffer before it is sent. All replies but data and listings are shorter.
const MAX_ASSEMBLED_BYTES: usize = 512;

/// An open device.
#[derive(Debug)]
pub struct Device {
    fd: OwnedFd,
    kind: Kind,
    /// A duplicate of another descriptor, which has the same queue of requests in flight.
    is_duplicate: bool,
}

/// The kind of the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `/dev/fuse`.
    Kernel,
    /// A socket that keeps message boundaries, with a simulated kernel at the other end.
    Socket,
    /// No descriptor: requests arrive in a guest's queues, which carry no notifications.
    #[cfg(feature = "virtiofs")]
    Guest,
}

impl Device {
    /// Takes a `/dev/fuse` descriptor that is bound to a mount, or a `SOCK_SEQPACKET` socket with the same protocol.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let mode = rustix::fs::fstat(&fd)?.st_mode;
        let socket = rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Socket;
        Ok(Self { fd, kind: if socket { Kind::Socket } else { Kind::Kernel }, is_duplicate: false })
    }

    /// Makes a placeholder for the connection to a guest.
    #[cfg(feature = "virtiofs")]
    pub(crate) fn guest() -> io::Result<Self> {
        let fd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, kind: Kind::Guest, is_duplicate: false })
    }

    /// Reports whether this is a real `/dev/fuse`.
    pub(crate) fn is_kernel(&self) -> bool {
        self.kind == Kind::Kernel
    }

    /// Reports whether it shares the queue of requests in flight with the descriptor that it was cloned from.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.is_duplicate
    }

    /// Duplicates the descriptor: both share the queue of requests in flight.
    pub(crate) fn duplicate(&self) -> io::Result<Self> {
        Ok(Self { fd: self.fd.try_clone()?, kind: self.kind, is_duplicate: true })
    }

    /// Opens another descriptor of the same connection, with its own queue of requests in flight unless the process lacks the
    /// privilege.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let fd = match self.kind {
            Kind::Socket => self.fd.try_clone()?,
            #[cfg(feature = "virtiofs")]
            Kind::Guest => self.fd.try_clone()?,
            Kind::Kernel => {
                let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
                match rustix::fs::open("/dev/fuse", flags, rustix::fs::Mode::empty()) {
                    Ok(fd) => {
                        sys::bind_clone(fd.as_fd(), self.fd.as_raw_fd())?;
                        fd
                    }
                    // The server dropped its privileges: its threads share one queue of requests in flight.
                    Err(Errno::ACCESS | Errno::PERM) => return self.duplicate(),
                    Err(errno) => return Err(errno.into()),
                }
            }
        };
        Ok(Self { fd, kind: self.kind, is_duplicate: false })
    }

    /// Waits for a request.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match rustix::io::read(&self.fd, buffer) {
            // End of file: the peer of the socket hung up, so the mount has ended.
            Ok(0) if self.kind == Kind::Socket => Err(Errno::NODEV),
            received => received,
        }
    }

    /// Sends one message.
    pub(crate) fn send(&self, header: &OutHeader, parts: &[&[u8]]) -> io::Result<()> {
        // The kernel looks up the page of each segment: a short message is sent as one.
        let mut whole = [0; MAX_ASSEMBLED_BYTES];
        let length = OutHeader::SIZE + parts.iter().map(|part| part.len()).sum::<usize>();
        if let Some(whole) = whole.get_mut(..length) {
            let (head, mut rest) = whole.split_at_mut(OutHeader::SIZE);
            head.copy_from_slice(header.as_bytes());
            for part in parts {
                let (here, after) = rest.split_at_mut(part.len());
                here.copy_from_slice(part);
                rest = after;
            }
            return until_done(|| rustix::io::write(&self.fd, whole));
        }
        // No message has more parts than header, structure, name and data.
        let mut slices = [IoSlice::new(&[]); 6];
        slices[0] = IoSlice::new(header.as_bytes());
        let count = 1 + parts.len();
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        until_done(|| rustix::io::writev(&self.fd, &slices[..count]))
    }

    /// Sends a notification to the kernel.
    pub(crate) fn notify(&self, notification: &Notification<'_>) -> Result<(), Errno> {
        #[cfg(feature = "virtiofs")]
        if self.kind == Kind::Guest {
            return Err(Errno::OPNOTSUPP);
        }
        loop {
            match rustix::io::writev(&self.fd, &notification.slices()) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                // The peer of the socket hung up.
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Errno::NOTCONN),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Registers a backing file.
    pub(crate) fn open_backing(&self, file: BorrowedFd<'_>) -> Result<u32, Errno> {
        let map = BackingMap { fd: file.as_raw_fd(), ..Default::default() };
        sys::backing_open(self.fd.as_fd(), &map)
    }

    /// Ends a registration.
    pub(crate) fn close_backing(&self, id: u32) -> Result<(), Errno> {
        sys::backing_close(self.fd.as_fd(), id)
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Retries a send that was interrupted by a signal.
fn until_done(mut send: impl FnMut() -> Result<usize, Errno>) -> io::Result<()> {
    loop {
        match send() {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The ioctls of the device, which no library defines.
mod sys {
    use super::*;

    /// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, u32)`.
    const CLONE: libc::c_ulong = 0x8004_e500;
    /// `FUSE_DEV_IOC_BACKING_OPEN`: `_IOW(229, 1, struct fuse_backing_map)`.
    const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
    /// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, u32)`.
    const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

    const _: () = assert!(size_of::<BackingMap>() == 16);

    fn checked(result: libc::c_int) -> Result<u32, Errno> {
        u32::try_from(result)
            .map_err(|_| Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }

    pub(super) fn bind_clone(fd: BorrowedFd<'_>, of: RawFd) -> Result<u32, Errno> {
        let of = of as u32;
        // SAFETY: the ioctl reads one u32 behind the pointer, which outlives the call.
        checked(unsafe { libc::ioctl(fd.as_raw_fd(), CLONE, &raw const of) })
    }

    pub(super) fn backing_open(fd: BorrowedFd<'_>, map: &BackingMap) -> Result<u32, Errno> {
        // SAFETY: the ioctl reads the 16 bytes of the structure, which outlives the call.
        checked(unsafe { libc::ioctl(fd.as_raw_fd(), BACKING_OPEN, &raw const *map) })
    }

    pub(super) fn backing_close(fd: BorrowedFd<'_>, id: u32) -> Result<(), Errno> {
        // SAFETY: the ioctl reads one u32 behind the pointer, which outlives the call.
        checked(unsafe { libc::ioctl(fd.as_raw_fd(), BACKING_CLOSE, &raw const id) }).map(drop)
    }
}
