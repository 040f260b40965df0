//! IOCTL and POLL.

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
        /// Length of the data that follows, bytes.
        pub in_size: u32,
        /// Room for the reply's data, bytes.
        pub out_size: u32,
    }

    /// A piece of the caller's memory, in the reply to an unrestricted IOCTL that wants to be retried.
    pub struct IoctlIovec {
        /// Address.
        pub base: u64,
        /// Length in bytes.
        pub len: u64,
    }

    /// Reply to IOCTL; data or [`IoctlIovec`]s follow.
    pub struct IoctlOut {
        /// What `ioctl` returns to the caller.
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
        /// Events waited for (`POLLIN`, ...).
        pub events: u32,
    }

    /// Reply to POLL.
    pub struct PollOut {
        /// Events that hold now.
        pub revents: u32,
        /// Zero.
        pub padding: u32,
    }
}
