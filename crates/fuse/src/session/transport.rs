//! Selection of the transport of requests: `/dev/fuse`, io_uring or virtio. It is made before INIT is answered, because
//! afterwards there is no fallback.

use shunt_fuse_abi::{InitFlags, InitIn};

use super::ring::PreparedRings;
use crate::negotiate::{Config, Transport};
use crate::transport::device::Device;

/// The transport of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransportInUse {
    /// Any but [`Transport::Auto`].
    pub transport: Transport,
    /// The reason why another requested transport is not in use.
    pub reason: Option<String>,
}

impl TransportInUse {
    pub(crate) fn dev(reason: Option<String>) -> Self {
        Self { transport: Transport::Dev, reason }
    }
}

/// Selects the transport, and sets up everything that may be refused: once INIT is answered there is no fallback.
pub(crate) fn choose(
    config: &Config,
    device: &Device,
    init: &InitIn,
) -> (Option<PreparedRings>, TransportInUse) {
    if config.transport.resolve(config.profile) != Transport::Uring {
        return (None, TransportInUse::dev(None));
    }
    match prepare(config, device, init) {
        Ok(rings) => (Some(rings), TransportInUse { transport: Transport::Uring, reason: None }),
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

/// The module parameter that enables FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

fn prepare(config: &Config, device: &Device, init: &InitIn) -> Result<PreparedRings, String> {
    if !device.is_kernel() {
        return Err("the device is not /dev/fuse".to_owned());
    }
    let offered = u64::from(init.flags) | u64::from(init.flags2) << 32;
    if !InitFlags::from_bits_retain(offered).contains(InitFlags::OVER_IO_URING) {
        return Err(match std::fs::read_to_string(SWITCH) {
            Ok(_) => format!("FUSE over io_uring is switched off in the kernel; enable it with `echo Y > {SWITCH}`"),
            Err(_) => "this kernel does not support FUSE over io_uring; it needs Linux 6.14 with CONFIG_FUSE_IO_URING".to_owned(),
        });
    }
    PreparedRings::new(config.max_write, config.rings_ahead).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("io_uring is not permitted ({error}); check the sysctl kernel.io_uring_disabled")
        }
        _ => format!("cannot set up io_uring: {error}"),
    })
}
