//! INIT: negotiation of version and capabilities.

use crate::InitFlags;

wire! {
    /// Argument of INIT. Old kernels send a shorter form, whose missing fields read as zero.
    pub struct InitIn {
        /// Major version; 7.
        pub major: u32,
        /// Minor version.
        pub minor: u32,
        /// Largest read-ahead in bytes.
        pub max_readahead: u32,
        /// Low half of the [`InitFlags`] on offer.
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
        /// Minor version of the server. Both sides then speak the smaller one.
        pub minor: u32,
        /// Largest read-ahead in bytes, at most what the kernel offered.
        pub max_readahead: u32,
        /// Low half of the [`InitFlags`] taken.
        pub flags: u32,
        /// Most background requests in flight; 0 leaves the kernel's default.
        pub max_background: u16,
        /// Background requests from which on the mount counts as congested; 0 leaves the default.
        pub congestion_threshold: u16,
        /// Largest WRITE in bytes; at least 4096.
        pub max_write: u32,
        /// Granularity of time stamps in nanoseconds, from 1 to 1,000,000,000; 0 counts as 1.
        pub time_gran: u32,
        /// Most pages in a request, valid with [`InitFlags::MAX_PAGES`].
        pub max_pages: u16,
        /// Log2 of the alignment of DAX mappings, valid with [`InitFlags::MAP_ALIGNMENT`].
        pub map_alignment: u16,
        /// High half of the [`InitFlags`] taken; counted with [`InitFlags::INIT_EXT`].
        pub flags2: u32,
        /// How deep backing files may be stacked, 1 or 2, with [`InitFlags::PASSTHROUGH`]; 0 turns it off.
        pub max_stack_depth: u32,
        /// Seconds after which an unanswered request aborts the connection, with [`InitFlags::REQUEST_TIMEOUT`].
        pub request_timeout: u16,
        /// Zero.
        pub unused: [u16; 11],
    }
}

/// Both halves as one set. The high half counts only when the low one says that it is there.
const fn join(flags: u32, flags2: u32) -> InitFlags {
    let low = InitFlags::from_bits_retain(flags as u64);
    if low.contains(InitFlags::INIT_EXT) {
        InitFlags::from_bits_retain(flags as u64 | (flags2 as u64) << 32)
    } else {
        low
    }
}

impl InitIn {
    /// What the kernel offers, bits unknown here included.
    #[must_use]
    pub const fn init_flags(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Stores both halves. A high half needs [`InitFlags::INIT_EXT`], which is added then.
    pub fn set_init_flags(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}

impl InitOut {
    /// What the server takes.
    #[must_use]
    pub const fn init_flags(&self) -> InitFlags {
        join(self.flags, self.flags2)
    }

    /// Stores both halves. A high half needs [`InitFlags::INIT_EXT`], which is added then.
    pub fn set_init_flags(&mut self, flags: InitFlags) {
        (self.flags, self.flags2) = split(flags);
    }
}

fn split(flags: InitFlags) -> (u32, u32) {
    let high = (flags.bits() >> 32) as u32;
    let ext = if high == 0 { InitFlags::empty() } else { InitFlags::INIT_EXT };
    ((flags | ext).bits() as u32, high)
}
