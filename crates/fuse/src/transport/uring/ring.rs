//! An io_uring with at most one command in flight. It is bound to the thread that starts it, and restricted to device commands
//! and, for zero copy, to transfers between registered pages and a file.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::thread;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use shunt_fuse_abi::consts::{
    IO_URING_CMD_ADD_BUFPOOL, IO_URING_CMD_ADD_QUEUE, IO_URING_CMD_COMMIT_AND_FETCH, IO_URING_CMD_REGISTER,
    URING_ZERO_COPY,
};
use shunt_fuse_abi::{UringBufpoolReq, UringCmdReq, Wire};

use super::payload_pool::PayloadPool;
use crate::transport::device::Device;

/// The slot of a ring's table of registered buffers that takes the pages of a zero-copy request. One is enough: the thread
/// that received such a request answers it before it receives another one. It must be 0, which [`Ring::register`] names.
const PAGES_SLOT: u16 = 0;
/// Pause between attempts to submit while the kernel has no memory for it.
const SUBMIT_RETRY_DELAY: Duration = Duration::from_millis(20);
/// Number of attempts to move pages while the kernel can start no thread for that.
const MAX_TRANSFER_TRIES: u32 = 250;

/// The direction of a transfer of zero-copy pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Fills the pages.
    FromFile,
    /// Writes the pages.
    IntoFile,
}

/// A ring that belongs to the thread that [starts](Self::start) it.
pub(crate) struct Ring(IoUring<squeue::Entry128, cqueue::Entry>);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// Room for the one command and, at the end, for its completion in addition to a late one.
    const ENTRIES: u32 = 2;

    /// Makes a ring that is disabled, and permanently restricted to device commands: system call filters do not see the
    /// operations of a ring, so an attacker could otherwise use it to open files and sockets. With `zero_copy` it may also read
    /// and write open files, but only into and from pages that the kernel has registered.
    pub(crate) fn new(zero_copy: bool) -> io::Result<Self> {
        // With a single issuer that also runs the kernel's task work, nothing interrupts the handler, and one system call commits
        // a reply, sleeps, and copies the next request in.
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled().setup_no_sqarray();
        let ring = builder.build(Self::ENTRIES)?;
        let mut allowed = vec![Restriction::sqe_op(opcode::UringCmd80::CODE)];
        if zero_copy {
            ring.submitter().register_buffers_sparse(u32::from(PAGES_SLOT) + 1)?;
            allowed.extend([opcode::ReadFixed::CODE, opcode::WriteFixed::CODE].map(Restriction::sqe_op));
        }
        // Everything that is not listed is refused: all flags, and all registrations.
        ring.submitter().register_restrictions(&mut allowed)?;
        Ok(Self(ring))
    }

    /// Binds the ring to the calling thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.0.submitter().register_enable_rings()
    }

    /// Creates a queue of the kernel, before anything is registered with it (7.46).
    pub(crate) fn add_queue(&mut self, device: &Device, queue: u16, zero_copy: bool) -> Result<(), Errno> {
        let flags = if zero_copy { URING_ZERO_COPY } else { 0 };
        let request = UringCmdReq { flags, qid: queue, ..Default::default() };
        let command = Self::command(device, IO_URING_CMD_ADD_QUEUE, request.as_bytes(), None);
        self.run(&command).map(drop)
    }

    /// Gives a queue the buffers of its entries (7.46).
    pub(crate) fn add_pool(&mut self, device: &Device, queue: u16, pool: &PayloadPool) -> Result<(), Errno> {
        let cmd = UringCmdReq { qid: queue, ..Default::default() };
        let request =
            UringBufpoolReq { cmd, uaddr: pool.address(), len: pool.length(), ..Default::default() };
        let command = Self::command(device, IO_URING_CMD_ADD_BUFPOOL, request.as_bytes(), None);
        self.run(&command).map(drop)
    }

    /// Queues the command that offers an entry's memory to a queue of the kernel.
    pub(crate) fn register(&mut self, device: &Device, queue: u16, memory: &[libc::iovec; 2]) {
        let request = UringCmdReq { qid: queue, ..Default::default() };
        let address = Some(memory.as_ptr() as u64);
        let mut command = Self::command(device, IO_URING_CMD_REGISTER, request.as_bytes(), address);
        sys::set_length(&mut command, memory.len() as u32);
        self.push(&command);
    }

    /// Queues the command that sends an entry's reply and asks for its next request.
    pub(crate) fn commit(&mut self, device: &Device, queue: u16, commit_id: u64) {
        let request = UringCmdReq { qid: queue, commit_id, ..Default::default() };
        let command = Self::command(device, IO_URING_CMD_COMMIT_AND_FETCH, request.as_bytes(), None);
        self.push(&command);
    }

    /// Moves a range of the data of a zero-copy request between its pages and `file` at `offset`; less at the end of the file, or
    /// where an error followed some progress. Returns how many bytes were moved.
    ///
    /// # Errors
    /// Those of `pread(2)` and `pwrite(2)` where nothing was moved.
    pub(crate) fn transfer(
        &mut self,
        direction: Direction,
        file: BorrowedFd<'_>,
        offset: u64,
        range: Range<usize>,
    ) -> Result<usize, Errno> {
        let length = range.len();
        let fd = Fd(file.as_raw_fd());
        let (mut done, mut tries) = (0, 0);
        while done < length {
            // Addresses of registered pages begin at zero.
            let at = std::ptr::without_provenance_mut(range.start + done);
            let (rest, position) = ((length - done) as u32, offset + done as u64);
            let command = match direction {
                Direction::FromFile => {
                    opcode::ReadFixed::new(fd, at, rest, PAGES_SLOT).offset(position).build()
                }
                Direction::IntoFile => {
                    opcode::WriteFixed::new(fd, at, rest, PAGES_SLOT).offset(position).build()
                }
            };
            match self.run(&command.into()) {
                Ok(0) => break,
                Ok(n) => done += n as usize,
                Err(Errno::INTR) => {}
                // The kernel moves some pages by a thread of its own, and gives up where the limit of threads is reached.
                Err(Errno::CANCELED) if tries < MAX_TRANSFER_TRIES => {
                    tries += 1;
                    thread::sleep(SUBMIT_RETRY_DELAY);
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    fn run(&mut self, command: &squeue::Entry128) -> Result<u32, Errno> {
        self.push(command);
        self.wait()
    }

    fn command(device: &Device, operation: u32, request: &[u8], address: Option<u64>) -> squeue::Entry128 {
        let mut area = [0; 80];
        area[..request.len()].copy_from_slice(request);
        let fd = Fd(device.as_fd().as_raw_fd());
        opcode::UringCmd80::new(fd, operation).cmd(area).addr(address).build()
    }

    fn push(&mut self, command: &squeue::Entry128) {
        // SAFETY: the command names a device or file that its thread holds open, and memory that the kernel is done with when
        // the command is submitted (the vector), that the entry or the queue keeps until it completes (request and payload),
        // or that the kernel itself has registered (pages).
        let pushed = unsafe { self.0.submission().push(command) };
        debug_assert!(pushed.is_ok(), "one command at a time");
    }

    /// Submits what is queued, and returns at once.
    pub(crate) fn submit(&self) -> io::Result<()> {
        retry(|| self.0.submit())
    }

    /// Submits what is queued, and waits for the completion. Returns its result.
    pub(crate) fn wait(&mut self) -> Result<u32, Errno> {
        loop {
            if let Some(result) = self.completion() {
                return result;
            }
            retry(|| self.0.submit_and_wait(1))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
    }

    /// Returns the completion of the command, if it has arrived.
    pub(crate) fn completion(&mut self) -> Option<Result<u32, Errno>> {
        let result = self.0.completion().next()?.result();
        Some(u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)))
    }
}

/// Repeats a submission until the kernel takes the command. One that is left in the queue would run together with the next one,
/// whose completion could not be told apart.
fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match call() {
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR) => {}
                Some(Errno::AGAIN | Errno::NOMEM | Errno::BUSY) => thread::sleep(SUBMIT_RETRY_DELAY),
                _ => return Err(error),
            },
            Ok(_) => return Ok(()),
        }
    }
}

/// Raw access that the io_uring crate does not offer.
mod sys {
    use io_uring::squeue::Entry128;

    /// Offset of `len` in `struct io_uring_sqe`.
    const LENGTH: usize = 24;

    const _: () = assert!(size_of::<Entry128>() == 128 && align_of::<Entry128>() >= align_of::<u32>());

    /// Sets the `len` of a submission: the kernel reads the number of vectors from it.
    pub(super) fn set_length(entry: &mut Entry128, length: u32) {
        // SAFETY: an entry is laid out as the kernel's `struct io_uring_sqe` of 128 bytes, which has 32 bits for the
        // length at this offset, a multiple of their size.
        unsafe { std::ptr::from_mut(entry).byte_add(LENGTH).cast::<u32>().write(length) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use io_uring::squeue::Flags;

    use super::*;

    fn ring(zero_copy: bool) -> Option<Ring> {
        let ring = match Ring::new(zero_copy) {
            Err(error)
                if error.raw_os_error().is_some_and(|code| code == libc::EPERM || code == libc::ENOSYS) =>
            {
                crate::mount::tests::skip("io_uring is not permitted");
                return None;
            }
            made => made.unwrap(),
        };
        ring.start().unwrap();
        Some(ring)
    }

    fn assert_restricted(ring: &mut Ring) {
        let refused = Err(Errno::ACCESS);
        let open = opcode::OpenAt::new(Fd(libc::AT_FDCWD), c"/dev/null".as_ptr()).build();
        assert_eq!(ring.run(&open.into()), refused);
        let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build();
        assert_eq!(ring.run(&socket.into()), refused);
        assert_eq!(ring.run(&opcode::Nop::new().build().into()), refused);
        // A command does reach its file, which supports none.
        let file = File::open("/dev/zero").unwrap();
        let mut byte = 0;
        let read = opcode::Read::new(Fd(file.as_raw_fd()), &raw mut byte, 1).build();
        assert_eq!(ring.run(&read.into()), refused);
        let command = opcode::UringCmd80::new(Fd(file.as_raw_fd()), IO_URING_CMD_REGISTER).build();
        assert_eq!(ring.run(&command.clone()), Err(Errno::OPNOTSUPP));
        assert_eq!(ring.run(&command.flags(Flags::ASYNC)), refused);
        // The restriction cannot be changed.
        let denied =
            |tried: io::Result<()>| assert_eq!(tried.unwrap_err().raw_os_error(), Some(libc::EACCES));
        denied(ring.0.submitter().register_files(&[file.as_raw_fd()]));
        denied(ring.0.submitter().register_buffers_sparse(1));
        denied(ring.0.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::OpenAt::CODE)]));
    }

    #[test]
    fn a_ring_does_nothing_but_commands_of_devices() {
        let Some(mut ring) = ring(false) else { return };
        assert_restricted(&mut ring);
        let file = File::open("/dev/zero").unwrap();
        assert_eq!(ring.transfer(Direction::FromFile, file.as_fd(), 0, 0..1), Err(Errno::ACCESS));
    }

    #[test]
    fn a_ring_for_zero_copy_also_moves_registered_pages() {
        let Some(mut ring) = ring(true) else { return };
        assert_restricted(&mut ring);
        // The kernel has registered none.
        let file = File::options().read(true).write(true).open("/dev/zero").unwrap();
        for direction in [Direction::FromFile, Direction::IntoFile] {
            assert_eq!(ring.transfer(direction, file.as_fd(), 0, 0..1), Err(Errno::FAULT));
        }
    }
}
