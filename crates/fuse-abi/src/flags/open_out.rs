use bitflags::bitflags;

bitflags! {
    /// How the kernel shall treat an open file (`FOPEN_...`).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct OpenOutFlags: u32 {
        /// Bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keep the cached data of earlier opens.
        const KEEP_CACHE = 1 << 1;
        /// The file cannot seek.
        const NONSEEKABLE = 1 << 2;
        /// Keep the directory listing (7.28).
        const CACHE_DIR = 1 << 3;
        /// The file has no position at all (7.31).
        const STREAM = 1 << 4;
        /// Do not write out and FLUSH at close; no effect with the write-back cache (7.35).
        const NOFLUSH = 1 << 5;
        /// Allow direct writes to one file side by side (7.38).
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Read and write the backing file `backing_id` inside the kernel (7.40).
        const PASSTHROUGH = 1 << 7;
        /// Hand over pages without a copy, on io_uring queues set up for it (7.46).
        const IO_URING_ZERO_COPY = 1 << 8;
    }
}
