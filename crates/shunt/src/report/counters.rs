//! Counters of single kinds of mounts in the daemon's report.

use serde::{Deserialize, Serialize};

/// File data that passed through the daemon. Data of passed-through files does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transferred {
    /// Bytes in replies to reads.
    pub read_bytes: u64,
    /// Bytes of writes that succeeded.
    pub written_bytes: u64,
    /// The part of both in requests whose data stayed in the kernel's pages: zero copy over io_uring.
    pub zero_copied_bytes: u64,
}

/// The file system on an image, since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ext4Report {
    /// It can be changed: mounted for writing, and not ended by an error.
    pub writable: bool,
    /// It was mounted for writing.
    pub mounted_writable: bool,
    /// Commits that wrote metadata, to the journal if there is one.
    pub commits: u64,
    /// Metadata blocks read from the device, because they were not cached.
    pub metadata_reads: u64,
    /// Operations that failed because metadata is corrupt.
    pub corruptions: u64,
    /// Operations that failed because the device could not be read or written.
    pub io_errors: u64,
}

/// A thread that sent requests. Times are whole seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Caller {
    /// Its thread id in the PID namespace of the mount. 0: the kernel itself, or a process outside of that namespace.
    pub tid: u32,
    /// The user of its last request.
    pub uid: u32,
    /// Requests since it was first seen. Counting starts again after a minute without a request, and when many others sent requests.
    pub requests: u64,
    /// Seconds since the first of these requests.
    pub since_s: u64,
    /// Seconds since the last of these requests.
    pub idle_s: u64,
}
