//! A FUSE server over io_uring, without a library: one thread and one ring entry per queue.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;

use super::affinity;
use super::wire::{self, Reply};

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Offsets of the parts of an entry's header (`struct fuse_uring_req_header`), and its length.
const COMMIT_ID: usize = 256 + 8;
const PAYLOAD_SIZE: usize = 256 + 16;
const HEADER_LENGTH: usize = 256 + 32;
/// The payload starts on a page of its own. The kernel refuses fewer than 32 pages.
const PAYLOAD: usize = 4096;
const PAYLOAD_CAPACITY: usize = 128 << 10;

/// Serves each queue on a thread of its own, on the queue's processor or all of them on `core`. The threads end with the process.
///
/// # Errors
/// When the kernel's queues cannot be counted, or a ring or thread cannot be created.
pub fn serve(device: &Arc<OwnedFd>, core: Option<usize>) -> Result<()> {
    for queue in 0..queues()? {
        let device = device.clone();
        let ring =
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_r_disabled().build(2)?;
        thread::Builder::new().name(format!("ring-{queue}")).spawn(move || {
            let served =
                affinity::pin(core.unwrap_or(queue.into())).and_then(|()| serve_queue(&device, ring, queue));
            if let Err(error) = served {
                eprintln!("queue {queue}: {error:#}");
            }
        })?;
    }
    Ok(())
}

/// The number of queues: one for each possible processor.
fn queues() -> Result<u16> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = list.trim().rsplit([',', '-']).next().unwrap_or_default();
    Ok(last.parse::<u16>().with_context(|| format!("parse the list of processors `{}`", list.trim()))? + 1)
}

fn serve_queue(device: &OwnedFd, mut ring: IoUring<Entry128, cqueue::Entry>, queue: u16) -> Result<()> {
    ring.submitter().register_enable_rings()?;
    let mut memory = vec![0_u8; PAYLOAD + PAYLOAD_CAPACITY];
    let start = memory.as_mut_ptr();
    let vectors = [
        libc::iovec { iov_base: start.cast(), iov_len: HEADER_LENGTH },
        libc::iovec { iov_base: start.wrapping_add(PAYLOAD).cast(), iov_len: PAYLOAD_CAPACITY },
    ];
    let mut entry = command(device, queue, REGISTER, 0, vectors.as_ptr() as u64);
    set_length(&mut entry, 2);
    loop {
        // SAFETY: the entry names a device, vectors and memory that live as long as the ring does.
        unsafe { ring.submission().push(&entry)? };
        while let Err(error) = ring.submit_and_wait(1) {
            if error.kind() != std::io::ErrorKind::Interrupted {
                return Err(error.into());
            }
        }
        let done = ring.completion().next().context("io_uring returned no completion")?.result();
        if done < 0 {
            return match Errno::from_raw_os_error(-done) {
                // The file system was unmounted.
                Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV => Ok(()),
                error => Err(error).context("io_uring command"),
            };
        }
        entry = command(device, queue, COMMIT_AND_FETCH, answer(&mut memory), 0);
    }
}

/// Writes the reply to the request in `memory` and returns the request's commit id.
fn answer(memory: &mut [u8]) -> u64 {
    let reply = wire::parse(memory).and_then(wire::answer).map_or_else(|| vec![0; 16], Reply::bytes);
    let (header, body) = reply.split_at(16);
    memory[..header.len()].copy_from_slice(header);
    memory[PAYLOAD..PAYLOAD + body.len()].copy_from_slice(body);
    memory[PAYLOAD_SIZE..PAYLOAD_SIZE + 4].copy_from_slice(&(body.len() as u32).to_ne_bytes());
    memory[COMMIT_ID..].first_chunk().map_or(0, |id| u64::from_ne_bytes(*id))
}

/// A command with a `struct fuse_uring_cmd_req`: 8 bytes of flags, the id, and the queue.
fn command(device: &OwnedFd, queue: u16, operation: u32, commit: u64, address: u64) -> Entry128 {
    let mut area = [0; 80];
    area[8..16].copy_from_slice(&commit.to_ne_bytes());
    area[16..18].copy_from_slice(&queue.to_ne_bytes());
    let device = types::Fd(device.as_raw_fd());
    let address = (address != 0).then_some(address);
    opcode::UringCmd80::new(device, operation).cmd(area).addr(address).build()
}

/// Sets the `len` field of a submission, the number of vectors, which the library does not expose.
fn set_length(entry: &mut Entry128, length: u32) {
    // SAFETY: an entry is the kernel's `struct io_uring_sqe` of 128 bytes, with 32 bits for the length at offset 24.
    unsafe { std::ptr::from_mut(entry).byte_add(24).cast::<u32>().write(length) }
}
