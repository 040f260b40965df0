//! The features that this kernel offers to a FUSE server, read from the INIT request of a mount that is never attached.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shunt_fuse_abi::{InHeader, InitFlags, InitIn, Wire};

use super::{MountError, MountMethod, MountOptions, prepare};

/// Timeout of the INIT request, which the kernel queues when the file system is created.
const INIT_TIMEOUT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The offer of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOffer {
    /// The minor version of protocol 7.
    pub minor: u32,
    /// Maximum read-ahead in bytes.
    pub max_readahead: u32,
    /// The capabilities that a server may request.
    pub capabilities: InitFlags,
}

/// Reads the offer of this kernel. Needs CAP_SYS_ADMIN. No path leads to the mount, which disappears before this returns.
///
/// # Errors
/// The errors of [`prepare`] with [`MountMethod::Fsopen`], and [`MountError::State`] if no INIT request arrives.
pub fn kernel_offer() -> Result<KernelOffer, MountError> {
    let detached = prepare(&MountOptions::new().fsname("shunt-probe").method(MountMethod::Fsopen))?;
    let failed =
        |errno: Errno| MountError::State { what: "the INIT request of /dev/fuse", error: errno.into() };
    let device = detached.device().ok_or_else(|| failed(Errno::NOTSUP))?;
    let mut ready = [PollFd::new(&device, PollFlags::IN)];
    if poll(&mut ready, Some(&INIT_TIMEOUT)).map_err(failed)? == 0 {
        return Err(failed(Errno::TIMEDOUT));
    }
    // The kernel refuses to read into a buffer that is smaller than its minimum.
    let mut buffer = vec![0; 8192 + 4096];
    let length = rustix::io::read(device, &mut buffer).map_err(failed)?;
    parse(&buffer[..length]).ok_or_else(|| failed(Errno::PROTO))
}

fn parse(message: &[u8]) -> Option<KernelOffer> {
    let (_, body) = InHeader::read_from_prefix(message)?;
    // Kernels before 5.17 send a shorter request.
    let mut padded = [0; size_of::<InitIn>()];
    let known = body.len().min(padded.len());
    padded[..known].copy_from_slice(&body[..known]);
    let init = InitIn::read_from_bytes(&padded)?;
    let capabilities = u64::from(init.flags) | u64::from(init.flags2) << 32;
    let capabilities = InitFlags::from_bits_retain(capabilities);
    (init.major == 7).then_some(KernelOffer {
        minor: init.minor,
        max_readahead: init.max_readahead,
        capabilities,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_foreign_messages_are_refused() {
        assert_eq!(parse(&[]), None);
        assert_eq!(parse(&[0; 39]), None);
        assert_eq!(parse(&[0; 104]), None);
        let mut message = vec![0; 40];
        message.extend([7u32, 31, 131_072, 1 << 22].iter().flat_map(|word| word.to_ne_bytes()));
        let offer = parse(&message).unwrap();
        assert_eq!((offer.minor, offer.max_readahead), (31, 131_072));
        assert_eq!(offer.capabilities, InitFlags::MAX_PAGES);
    }

    #[test]
    fn this_kernel_offers_something() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        match kernel_offer() {
            Ok(offer) => assert!(offer.minor >= 28 && offer.max_readahead > 0, "{offer:?}"),
            // A kernel without fsopen, or a container without /dev/fuse.
            Err(error) => assert!(!error.to_string().contains("INIT"), "{error}"),
        }
    }
}
