//! Constants of the protocol other than opcodes and flags.

/// Major version.
pub const KERNEL_VERSION: u32 = 7;
/// Minor version that this crate describes.
pub const KERNEL_MINOR_VERSION: u32 = 46;
/// The first minor version with a notification that expires all names.
pub const MINOR_EXPIRE_ALL: u32 = 44;
/// Node id of the root directory.
pub const ROOT_ID: u64 = 1;
/// Bit of `unique` that marks a resent request (7.40).
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// User or group id in the header for a caller without an id in the mount's idmapping (7.41).
pub const INVALID_UIDGID: u32 = u32::MAX;
/// Minimum size of a read buffer in bytes; a read of the device with a smaller one fails.
pub const MIN_READ_BUFFER: usize = 8192;
/// Maximum length of an accepted name, in bytes without the NUL. Older kernels send no longer ones; newer ones may send up to
/// 4095 bytes, which no Linux file system stores, so ENAMETOOLONG is the correct reply.
pub const NAME_MAX: usize = 1024;
/// Maximum length of the name of an extended attribute, in bytes without the NUL (`XATTR_NAME_MAX`).
pub const XATTR_NAME_MAX: usize = 255;
/// Maximum length of the target of a symbolic link, in bytes without the NUL (`PATH_MAX` - 1).
pub const SYMLINK_MAX: usize = 4095;
/// Maximum number of [`crate::IoctlIovec`]s in the reply to an unrestricted ioctl, both directions together.
pub const IOCTL_MAX_IOV: usize = 256;
/// Size of the reply to INIT for a kernel older than 7.5, in bytes.
pub const COMPAT_INIT_OUT_SIZE: usize = 8;
/// Size of the reply to INIT for a kernel older than 7.23, in bytes.
pub const COMPAT_22_INIT_OUT_SIZE: usize = 24;

/// Maximum number of security contexts; extension types up to this value are such a number.
pub const MAX_NR_SECCTX: u32 = 31;
/// Extension type: supplementary groups.
pub const EXT_GROUPS: u32 = 32;

/// Size of [`crate::UringReqHeader::in_out`] in bytes.
pub const URING_IN_OUT_HEADER_SZ: usize = 128;
/// Size of [`crate::UringReqHeader::op_in`] in bytes.
pub const URING_OP_IN_OUT_SZ: usize = 128;
/// Ring command: register a buffer and wait for a request.
pub const IO_URING_CMD_REGISTER: u32 = 1;
/// Ring command: send the reply and wait for the next request.
pub const IO_URING_CMD_COMMIT_AND_FETCH: u32 = 2;
/// Ring command: create a queue (7.46).
pub const IO_URING_CMD_ADD_QUEUE: u32 = 3;
/// Ring command: register a queue's pool of payload buffers (7.46).
pub const IO_URING_CMD_ADD_BUFPOOL: u32 = 4;
/// Flag of [`IO_URING_CMD_ADD_QUEUE`]: requests may be zero-copy; requires CAP_SYS_ADMIN and a pool (7.46).
pub const URING_ZERO_COPY: u64 = 1;
/// Flag of [`crate::UringEntInOut`]: the data of this request stays in its registered pages (7.46).
pub const URING_ENT_ZERO_COPY: u64 = 1;

/// Encodes an ioctl number: direction (1 write, 2 read), size of the argument, FUSE's magic number, number.
const fn ioc(dir: u32, size: usize, nr: u32) -> u32 {
    const MAGIC: u32 = 229;
    dir << 30 | (size as u32) << 16 | MAGIC << 8 | nr
}

/// Ioctl of the device: attach this open file to the session of the given descriptor (a `u32`).
pub const DEV_IOC_CLONE: u32 = ioc(2, size_of::<u32>(), 0);
/// Ioctl of the device: register a backing file ([`crate::BackingMap`]); returns its id.
pub const DEV_IOC_BACKING_OPEN: u32 = ioc(1, size_of::<crate::BackingMap>(), 1);
/// Ioctl of the device: release a backing id (a `u32`).
pub const DEV_IOC_BACKING_CLOSE: u32 = ioc(1, size_of::<u32>(), 2);
/// Ioctl of the device: make the mount wait for the reply to INIT.
pub const DEV_IOC_SYNC_INIT: u32 = ioc(0, 0, 3);
