//! Selection of the transport of requests: `/dev/fuse`, io_uring or virtio. It is made before INIT is answered, because
//! afterwards there is no fallback.

use shunt_fuse_abi::{InitFlags, InitIn};

use super::ring::PreparedRings;
use crate::negotiate::{Config, RingBuffers, Transport};
use crate::transport::device::Device;

/// The transport of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportInUse {
    /// Any but [`Transport::Auto`].
    pub transport: Transport,
    /// The reason why another requested transport is not in use.
    pub reason: Option<String>,
    /// The place where io_uring keeps the data of requests.
    pub buffers: Option<RingBuffers>,
}

impl TransportInUse {
    pub(crate) fn dev(reason: Option<String>) -> Self {
        Self::new(Transport::Dev, reason)
    }

    pub(crate) fn new(transport: Transport, reason: Option<String>) -> Self {
        Self { transport, reason, buffers: None }
    }
}

/// Selects the transport, and sets up everything that may be refused: once INIT is answered there is no fallback. `survives`: another
/// server is to continue the session, which is impossible over io_uring.
pub(crate) fn choose(
    config: &Config,
    device: &Device,
    init: &InitIn,
    survives: bool,
) -> (Option<PreparedRings>, TransportInUse) {
    if config.transport.resolve(config.profile) != Transport::Uring {
        return (None, TransportInUse::dev(None));
    }
    let offered = offered(init);
    if survives && config.transport == Transport::Auto && offered.contains(InitFlags::HAS_RESEND) {
        let has_rings = offered.contains(InitFlags::OVER_IO_URING);
        return (None, TransportInUse::dev(has_rings.then(|| NOT_RESUMABLE.to_owned())));
    }
    match prepare(config, device, offered) {
        Ok(rings) => {
            let buffers = Some(rings.buffers());
            (Some(rings), TransportInUse { buffers, ..TransportInUse::new(Transport::Uring, None) })
        }
        Err(reason) if config.transport == Transport::Auto => {
            tracing::debug!("transport is /dev/fuse instead of io_uring: {reason}");
            (None, TransportInUse::dev(None))
        }
        Err(reason) => {
            tracing::warn!("transport is /dev/fuse instead of io_uring: {reason}");
            (None, TransportInUse::dev(Some(reason)))
        }
    }
}

/// The reason against io_uring where the choice is ours.
const NOT_RESUMABLE: &str = "over io_uring no other daemon could take over";

fn offered(init: &InitIn) -> InitFlags {
    InitFlags::from_bits_retain(u64::from(init.flags) | u64::from(init.flags2) << 32)
}

/// The module parameter that enables FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

fn prepare(config: &Config, device: &Device, offered: InitFlags) -> Result<PreparedRings, String> {
    if !device.is_kernel() {
        return Err("the device is not /dev/fuse".to_owned());
    }
    if !offered.contains(InitFlags::OVER_IO_URING) {
        return Err(match std::fs::read_to_string(SWITCH) {
            Ok(_) => format!("FUSE over io_uring is switched off in the kernel; enable it with `echo Y > {SWITCH}`"),
            Err(_) => "this kernel does not support FUSE over io_uring; it needs Linux 6.14 with CONFIG_FUSE_IO_URING".to_owned(),
        });
    }
    let buffers = buffers(config.ring_buffers, offered, crate::privilege::has_sys_admin());
    PreparedRings::new(config.max_write, config.rings_ahead, buffers).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("io_uring is not permitted ({error}); check the sysctl kernel.io_uring_disabled")
        }
        _ => format!("cannot set up io_uring: {error}"),
    })
}

/// Returns how the data of requests may be kept. Pools by themselves save memory and cost time, so they are used for zero copy, or
/// if they are asked for.
fn buffers(wanted: RingBuffers, offered: InitFlags, privileged: bool) -> RingBuffers {
    match wanted {
        _ if !offered.contains(InitFlags::HAS_IO_URING_BUFPOOL) => RingBuffers::PerEntry,
        RingBuffers::ZeroCopy if !privileged => RingBuffers::PerEntry,
        wanted => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_kernel_and_the_privilege() {
        let pools = InitFlags::HAS_IO_URING_BUFPOOL;
        assert_eq!(buffers(RingBuffers::ZeroCopy, pools, true), RingBuffers::ZeroCopy);
        assert_eq!(buffers(RingBuffers::ZeroCopy, pools, false), RingBuffers::PerEntry);
        assert_eq!(buffers(RingBuffers::ZeroCopy, InitFlags::empty(), true), RingBuffers::PerEntry);
        assert_eq!(buffers(RingBuffers::Pool, pools, false), RingBuffers::Pool);
        assert_eq!(buffers(RingBuffers::Pool, InitFlags::empty(), false), RingBuffers::PerEntry);
        assert_eq!(buffers(RingBuffers::PerEntry, pools, true), RingBuffers::PerEntry);
    }
}
