//! Numbers of the protocol that are neither structure, opcode nor flag.

/// Major version.
pub const KERNEL_VERSION: u32 = 7;
/// Minor version that this crate describes.
pub const KERNEL_MINOR_VERSION: u32 = 45;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Bit of `unique` that marks a request that is sent again (7.40).
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// Stands in the header for a user or group that has no number inside the mount's idmapping (7.41).
pub const INVALID_UIDGID: u32 = u32::MAX;
/// A read of the device with a smaller buffer fails, in bytes.
pub const MIN_READ_BUFFER: usize = 8192;
/// Longest name that is accepted, in bytes without the NUL. Older kernels send no longer ones; newer ones may send up
/// to 4095 bytes, which no Linux file system stores, so ENAMETOOLONG is the true answer.
pub const NAME_MAX: usize = 1024;
/// Longest name of an extended attribute, in bytes without the NUL (`XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes without the NUL (`PATH_MAX` - 1).
pub const SYMLINK_MAX: usize = 4095;
/// Most [`crate::IoctlIovec`]s in the reply to an unrestricted ioctl, both directions together.
pub const IOCTL_MAX_IOV: usize = 256;
/// Size of the reply to INIT towards a kernel older than 7.5, in bytes.
pub const COMPAT_INIT_OUT_SIZE: usize = 8;
/// Size of the reply to INIT towards a kernel older than 7.23, in bytes.
pub const COMPAT_22_INIT_OUT_SIZE: usize = 24;

/// Largest number of security contexts; extension types up to here are such a number.
pub const MAX_NR_SECCTX: u32 = 31;
/// Extension type: supplementary groups.
pub const EXT_GROUPS: u32 = 32;

/// Size of [`crate::UringReqHeader::in_out`] in bytes.
pub const URING_IN_OUT_HEADER_SZ: usize = 128;
/// Size of [`crate::UringReqHeader::op_in`] in bytes.
pub const URING_OP_IN_OUT_SZ: usize = 128;
/// Ring command: hand over a buffer and wait for a request.
pub const IO_URING_CMD_REGISTER: u32 = 1;
/// Ring command: give the reply and wait for the next request.
pub const IO_URING_CMD_COMMIT_AND_FETCH: u32 = 2;
/// Ring command: create a queue (7.46).
pub const IO_URING_CMD_ADD_QUEUE: u32 = 3;
/// Ring command: give a queue its pool of payload buffers (7.46).
pub const IO_URING_CMD_ADD_BUFPOOL: u32 = 4;
/// Flag of [`IO_URING_CMD_ADD_QUEUE`]: requests may come without a copy; wants CAP_SYS_ADMIN and a pool (7.46).
pub const URING_ZERO_COPY: u64 = 1;
/// Flag of [`crate::UringEntInOut`]: the data of this request stays in its registered pages (7.46).
pub const URING_ENT_ZERO_COPY: u64 = 1;

/// Encodes an ioctl number: direction (1 write, 2 read), size of the argument, FUSE's magic, number.
const fn ioc(dir: u32, size: usize, nr: u32) -> u32 {
    const MAGIC: u32 = 229;
    dir << 30 | (size as u32) << 16 | MAGIC << 8 | nr
}

/// Ioctl of the device: attach this open file to the session of the descriptor (a `u32`) given.
pub const DEV_IOC_CLONE: u32 = ioc(2, size_of::<u32>(), 0);
/// Ioctl of the device: register a backing file ([`crate::BackingMap`]); returns its id.
pub const DEV_IOC_BACKING_OPEN: u32 = ioc(1, size_of::<crate::BackingMap>(), 1);
/// Ioctl of the device: release a backing id (a `u32`).
pub const DEV_IOC_BACKING_CLOSE: u32 = ioc(1, size_of::<u32>(), 2);
/// Ioctl of the device: let the mount wait for the reply to INIT.
pub const DEV_IOC_SYNC_INIT: u32 = ioc(0, 0, 3);
