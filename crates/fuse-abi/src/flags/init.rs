use bitflags::bitflags;

bitflags! {
    /// Capabilities: offered by the kernel in INIT, accepted by the server in its reply. Bits 32 and up are sent in `flags2`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Concurrent reads of one file.
        const ASYNC_READ = 1 << 0;
        /// The server handles POSIX locks.
        const POSIX_LOCKS = 1 << 1;
        /// Never used.
        const FILE_OPS = 1 << 2;
        /// The server handles `O_TRUNC` in OPEN.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// The server looks up `.` and `..`.
        const EXPORT_SUPPORT = 1 << 4;
        /// WRITEs above 4096 bytes.
        const BIG_WRITES = 1 << 5;
        /// The server applies the umask, not the kernel.
        const DONT_MASK = 1 << 6;
        /// The device can be spliced into.
        const SPLICE_WRITE = 1 << 7;
        /// Pages can be moved on splice into the device.
        const SPLICE_MOVE = 1 << 8;
        /// The device can be spliced from.
        const SPLICE_READ = 1 << 9;
        /// The server handles BSD locks (7.17).
        const FLOCK_LOCKS = 1 << 10;
        /// IOCTL on directories is supported (7.18).
        const HAS_IOCTL_DIR = 1 << 11;
        /// Invalidate cached data when size or modification time changed (7.20).
        const AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS (7.21).
        const DO_READDIRPLUS = 1 << 13;
        /// READDIRPLUS only where a lookup will likely follow (7.21).
        const READDIRPLUS_AUTO = 1 << 14;
        /// Asynchronous direct I/O (7.22).
        const ASYNC_DIO = 1 << 15;
        /// The kernel caches written data, size and times (7.23).
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to OPEN stops further opens (7.23).
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Concurrent LOOKUP and READDIR in one directory (7.25).
        const PARALLEL_DIROPS = 1 << 18;
        /// The server clears setuid, setgid and capabilities on write, chown and truncate (7.26).
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel enforces POSIX ACLs (7.26).
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort gives ECONNABORTED (7.27).
        const ABORT_ERROR = 1 << 21;
        /// `max_pages` of the reply is valid (7.28).
        const MAX_PAGES = 1 << 22;
        /// Cache targets of symbolic links (7.28).
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to OPENDIR stops further opens of directories (7.29).
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Invalidate cached data only by notification (7.30).
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// `map_alignment` of the reply is valid (7.31).
        const MAP_ALIGNMENT = 1 << 26;
        /// Directories marked [`crate::AttrFlags::SUBMOUNT`] become mounts (7.32).
        const SUBMOUNTS = 1 << 27;
        /// The server clears setuid and setgid according to the kill flag of each request (7.33).
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has the long [`crate::SetxattrIn`] (7.33).
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid (7.36).
        const INIT_EXT = 1 << 30;
        /// Reserved, never used.
        const INIT_RESERVED = 1 << 31;
        /// Creations carry security contexts (7.36).
        const SECURITY_CTX = 1 << 32;
        /// DAX per file (7.36).
        const HAS_INODE_DAX = 1 << 33;
        /// Creations carry the caller's supplementary group that owns the parent (7.38).
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Names can be expired by notification (7.38).
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mmap of files under [`crate::OpenOutFlags::DIRECT_IO`] (7.39).
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Backing files (7.40). Excludes `WRITEBACK_CACHE`.
        const PASSTHROUGH = 1 << 37;
        /// No file handles for NFS and `open_by_handle_at` (7.40).
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests can be resent (7.40).
        const HAS_RESEND = 1 << 39;
        /// Idmapped mounts (7.41). Requires `default_permissions`.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests over io_uring (7.42).
        const OVER_IO_URING = 1 << 41;
        /// `request_timeout` of the reply is valid (7.43).
        const REQUEST_TIMEOUT = 1 << 42;
        /// Pools of payload buffers for io_uring queues (7.46).
        const HAS_IO_URING_BUFPOOL = 1 << 43;
    }
}
