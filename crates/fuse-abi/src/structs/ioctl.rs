//! Device control and polling: IOCTL and POLL.

wire! {
    /// Argument of IOCTL; `in_size` bytes of data follow.
    pub struct IoctlIn {
        /// File handle.
        pub fh: u64,
        /// [`crate::IoctlFlags`].
        pub flags: u32,
        /// The command.
        pub cmd: u32,
        /// The caller's argument, as a number.
        pub arg: u64,
        /// Length of the data that follows, in bytes.
        pub in_size: u32,
        /// Maximum size of the reply's data, in bytes.
        pub out_size: u32,
    }

    /// A range of the caller's memory, in a reply that requests a retry of an unrestricted IOCTL.
    pub struct IoctlIovec {
        /// Address.
        pub base: u64,
        /// Length in bytes.
        pub len: u64,
    }

    /// Reply to IOCTL; data or [`IoctlIovec`]s follow.
    pub struct IoctlOut {
        /// Return value of `ioctl(2)`.
        pub result: i32,
        /// [`crate::IoctlFlags::RETRY`] or nothing.
        pub flags: u32,
        /// Number of [`IoctlIovec`]s to read from the caller on retry.
        pub in_iovs: u32,
        /// Number of [`IoctlIovec`]s to write to the caller on retry.
        pub out_iovs: u32,
    }

    /// Argument of POLL.
    pub struct PollIn {
        /// File handle.
        pub fh: u64,
        /// The kernel's handle for a later wake-up.
        pub kh: u64,
        /// [`crate::PollFlags`].
        pub flags: u32,
        /// Requested events (`POLLIN`, ...).
        pub events: u32,
    }

    /// Reply to POLL.
    pub struct PollOut {
        /// Events that are ready now.
        pub revents: u32,
        /// Zero.
        pub padding: u32,
    }
}
