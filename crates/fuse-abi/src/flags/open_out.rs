use bitflags::bitflags;

bitflags! {
    /// I/O mode and cache behaviour of an open file (`FOPEN_...`).
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct OpenOutFlags: u32 {
        /// Bypass the page cache.
        const DIRECT_IO = 1 << 0;
        /// Keep the cached data of earlier opens.
        const KEEP_CACHE = 1 << 1;
        /// The file cannot seek.
        const NONSEEKABLE = 1 << 2;
        /// Cache the directory listing (7.28).
        const CACHE_DIR = 1 << 3;
        /// The file is a stream, without a file position (7.31).
        const STREAM = 1 << 4;
        /// Do not write back and FLUSH at close; no effect with the write-back cache (7.35).
        const NOFLUSH = 1 << 5;
        /// Allow concurrent direct writes to one file (7.38).
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Pass reads and writes through to the backing file `backing_id` (7.40).
        const PASSTHROUGH = 1 << 7;
        /// Transfer pages without a copy, on io_uring queues set up for it (7.46).
        const IO_URING_ZERO_COPY = 1 << 8;
    }
}
