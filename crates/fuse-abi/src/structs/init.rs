//! INIT: negotiation of version and capabilities.

use crate::InitFlags;

wire! {
    /// Argument of INIT. Old kernels send a shorter form, whose missing fields are zero.
    pub struct InitIn {
        /// Major version; 7.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Maximum read-ahead in bytes.
        pub max_readahead: u32,
        /// Low half of the offered [`InitFlags`].
        pub flags: u32,
        /// High half, valid with [`InitFlags::INIT_EXT`] (7.36).
        pub flags2: u32,
        /// Zero.
        pub unused: [u32; 11],
    }

    /// Reply to INIT.
    pub struct InitOut {
        /// Major version; 7.
        pub major: u32,
        /// Minor version of the server. Both sides then use the smaller one.
        pub minor: u32,
        /// Maximum read-ahead in bytes, at most what the kernel offered.
        pub max_readahead: u32,
        /// Low half of the accepted [`InitFlags`].
        pub flags: u32,
        /// Maximum number of background requests in flight; 0 keeps the kernel's default.
        pub max_background: u16,
        /// Number of background requests at which the mount counts as congested; 0 keeps the default.
        pub congestion_threshold: u16,
        /// Maximum size of a WRITE in bytes; at least 4096.
        pub max_write: u32,
        /// Granularity of time stamps in nanoseconds, from 1 to 1,000,000,000; 0 counts as 1.
        pub time_gran: u32,
        /// Maximum number of pages in a request, valid with [`InitFlags::MAX_PAGES`].
        pub max_pages: u16,
        /// Log2 of the alignment of DAX mappings, valid with [`InitFlags::MAP_ALIGNMENT`].
        pub map_alignment: u16,
        /// High half of the accepted [`InitFlags`]; valid with [`InitFlags::INIT_EXT`].
        pub flags2: u32,
        /// Maximum stacking depth of backing files, 1 or 2, with [`InitFlags::PASSTHROUGH`]; 0 disables passthrough.
        pub max_stack_depth: u32,
        /// Seconds after which an unanswered request aborts the connection, with [`InitFlags::REQUEST_TIMEOUT`].
        pub request_timeout: u16,
        /// Zero.
        pub unused: [u16; 11],
    }
}

/// Joins both halves to one set. The high half is valid only if the low half says so.
const fn join(flags: u32, flags2: u32) -> InitFlags {
    let low = InitFlags::from_bits_retain(flags as u64);
    if low.contains(InitFlags::INIT_EXT) {
        InitFlags::from_bits_retain(flags as u64 | (flags2 as u64) << 32)
    } else {
        low
    }
}

impl InitIn {
    /// Returns the capabilities that the kernel offers, including unknown bits.
    #[must_use]
    pub const fn init_flags(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Stores both halves. A high half requires [`InitFlags::INIT_EXT`], which is added then.
    pub fn set_init_flags(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}

impl InitOut {
    /// Returns the capabilities that the server accepts.
    #[must_use]
    pub const fn init_flags(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Stores both halves. A high half requires [`InitFlags::INIT_EXT`], which is added then.
    pub fn set_init_flags(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}

fn split(flags: InitFlags) -> (u32, u32) {
    let high = (flags.bits() >> 32) as u32;
    let ext = if high == 0 { InitFlags::empty() } else { InitFlags::INIT_EXT };
    ((flags | ext).bits() as u32, high)
}
