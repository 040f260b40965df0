//! An io_uring with at most one command in flight. It is bound to the thread that starts it, and restricted to device commands.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use io_uring::register::Restriction;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use shunt_fuse_abi::consts::{IO_URING_CMD_COMMIT_AND_FETCH, IO_URING_CMD_REGISTER};
use shunt_fuse_abi::{UringCmdReq, Wire};

use crate::transport::device::Device;

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
    /// operations of a ring, so an attacker could otherwise use it to open files and sockets.
    pub(crate) fn new() -> io::Result<Self> {
        // With a single issuer that also runs the kernel's task work, nothing interrupts the handler, and one system call commits
        // a reply, sleeps, and copies the next request in.
        let mut builder = IoUring::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled().setup_no_sqarray();
        let ring = builder.build(Self::ENTRIES)?;
        // Everything that is not listed is refused: all flags, and all registrations.
        ring.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::UringCmd80::CODE)])?;
        Ok(Self(ring))
    }

    /// Binds the ring to the calling thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        self.0.submitter().register_enable_rings()
    }

    /// Queues the command that offers an entry's memory to a queue of the kernel.
    pub(crate) fn register(&mut self, device: &Device, queue: u16, memory: &[libc::iovec; 2]) {
        let request = UringCmdReq { qid: queue, ..Default::default() };
        let mut command = self.command(device, IO_URING_CMD_REGISTER, &request, Some(memory.as_ptr() as u64));
        sys::set_length(&mut command, memory.len() as u32);
        self.push(&command);
    }

    /// Queues the command that sends an entry's reply and asks for its next request.
    pub(crate) fn commit(&mut self, device: &Device, queue: u16, commit_id: u64) {
        let request = UringCmdReq { qid: queue, commit_id, ..Default::default() };
        let command = self.command(device, IO_URING_CMD_COMMIT_AND_FETCH, &request, None);
        self.push(&command);
    }

    fn command(
        &self,
        device: &Device,
        operation: u32,
        request: &UringCmdReq,
        address: Option<u64>,
    ) -> squeue::Entry128 {
        let mut area = [0; 80];
        area[..size_of::<UringCmdReq>()].copy_from_slice(request.as_bytes());
        let fd = Fd(device.as_fd().as_raw_fd());
        opcode::UringCmd80::new(fd, operation).cmd(area).addr(address).build()
    }

    fn push(&mut self, command: &squeue::Entry128) {
        // SAFETY: the command names a device that its thread holds open, and memory that the kernel is done with when
        // the command is submitted (the vector) or that the entry keeps until it completes (request and payload).
        let pushed = unsafe { self.0.submission().push(command) };
        debug_assert!(pushed.is_ok(), "one command at a time");
    }

    /// Submits what is queued, and returns at once.
    pub(crate) fn submit(&self) -> io::Result<()> {
        retry(|| self.0.submit())
    }

    /// Submits what is queued, and waits for the completion.
    pub(crate) fn wait(&mut self) -> Result<(), Errno> {
        loop {
            if let Some(result) = self.completion() {
                return result;
            }
            retry(|| self.0.submit_and_wait(1))
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        }
    }

    /// Returns the completion of the command, if it has arrived.
    pub(crate) fn completion(&mut self) -> Option<Result<(), Errno>> {
        let completion = self.0.completion().next()?;
        Some(if completion.result() < 0 {
            Err(Errno::from_raw_os_error(-completion.result()))
        } else {
            Ok(())
        })
    }
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map(drop),
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

    use io_uring::squeue::{Entry128, Flags};

    use super::*;

    fn result(ring: &mut Ring, command: &Entry128) -> Result<(), Errno> {
        ring.push(command);
        ring.wait()
    }

    #[test]
    fn a_ring_does_nothing_but_commands_of_devices() {
        let mut ring = match Ring::new() {
            Err(error)
                if error.raw_os_error().is_some_and(|code| code == libc::EPERM || code == libc::ENOSYS) =>
            {
                return crate::mount::tests::skip("io_uring is not permitted");
            }
            made => made.unwrap(),
        };
        ring.start().unwrap();
        let refused = Err(Errno::ACCESS);
        let open = opcode::OpenAt::new(Fd(libc::AT_FDCWD), c"/dev/null".as_ptr()).build();
        assert_eq!(result(&mut ring, &open.into()), refused);
        assert_eq!(
            result(&mut ring, &opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, 0).build().into()),
            refused
        );
        assert_eq!(result(&mut ring, &opcode::Nop::new().build().into()), refused);
        // A command does reach its file, which supports none.
        let file = File::open("/dev/zero").unwrap();
        let command = opcode::UringCmd80::new(Fd(file.as_raw_fd()), IO_URING_CMD_REGISTER).build();
        assert_eq!(result(&mut ring, &command.clone()), Err(Errno::OPNOTSUPP));
        assert_eq!(result(&mut ring, &command.flags(Flags::ASYNC)), refused);
        // The restriction cannot be changed.
        let denied =
            |tried: io::Result<()>| assert_eq!(tried.unwrap_err().raw_os_error(), Some(libc::EACCES));
        denied(ring.0.submitter().register_files(&[file.as_raw_fd()]));
        denied(ring.0.submitter().register_restrictions(&mut [Restriction::sqe_op(opcode::OpenAt::CODE)]));
    }
}
