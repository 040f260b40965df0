//! Opcodes, with their numbers, names and dense indices.

/// Each line gives the variant, its number and its name; the position in the list is the dense index.
macro_rules! opcodes {
    ($($(#[$meta:meta])* $variant:ident = $raw:literal, $name:literal;)*) => {
        /// The operation of a request. CUSE's opcode is not included.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum Opcode { $($(#[$meta])* $variant = $raw,)* }

        impl Opcode {
            /// All opcodes, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the opcode of this number; `None` if it is unknown.
            #[must_use]
            pub const fn from_raw(raw: u32) -> Option<Self> {
                match raw {
                    $($raw => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the lower-case name, as statistics and logs show it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

opcodes! {
    /// Look up a name in a directory.
    Lookup = 1, "lookup";
    /// Drop lookups of a node. No reply.
    Forget = 2, "forget";
    /// Read attributes.
    Getattr = 3, "getattr";
    /// Change attributes.
    Setattr = 4, "setattr";
    /// Read the target of a symbolic link.
    Readlink = 5, "readlink";
    /// Create a symbolic link.
    Symlink = 6, "symlink";
    /// Create a file, device node, FIFO or socket.
    Mknod = 8, "mknod";
    /// Create a directory.
    Mkdir = 9, "mkdir";
    /// Remove a name.
    Unlink = 10, "unlink";
    /// Remove a directory.
    Rmdir = 11, "rmdir";
    /// Rename without flags.
    Rename = 12, "rename";
    /// Create a hard link.
    Link = 13, "link";
    /// Open a file.
    Open = 14, "open";
    /// Read data.
    Read = 15, "read";
    /// Write data.
    Write = 16, "write";
    /// Read the statistics of the file system.
    Statfs = 17, "statfs";
    /// The last descriptor of an open file was closed.
    Release = 18, "release";
    /// Make a file durable.
    Fsync = 20, "fsync";
    /// Set an extended attribute.
    Setxattr = 21, "setxattr";
    /// Read an extended attribute.
    Getxattr = 22, "getxattr";
    /// List the extended attributes.
    Listxattr = 23, "listxattr";
    /// Remove an extended attribute.
    Removexattr = 24, "removexattr";
    /// A descriptor was closed.
    Flush = 25, "flush";
    /// Negotiate version and capabilities.
    Init = 26, "init";
    /// Open a directory.
    Opendir = 27, "opendir";
    /// Read directory records.
    Readdir = 28, "readdir";
    /// The last descriptor of an open directory was closed.
    Releasedir = 29, "releasedir";
    /// Make a directory durable.
    Fsyncdir = 30, "fsyncdir";
    /// Test for a lock.
    Getlk = 31, "getlk";
    /// Take or release a lock.
    Setlk = 32, "setlk";
    /// Wait for a lock and take it.
    Setlkw = 33, "setlkw";
    /// Check permissions.
    Access = 34, "access";
    /// Create and open a file.
    Create = 35, "create";
    /// The caller of a request was interrupted. No reply needed.
    Interrupt = 36, "interrupt";
    /// Map a block of a file to a block of the device.
    Bmap = 37, "bmap";
    /// The file system was unmounted.
    Destroy = 38, "destroy";
    /// Device control.
    Ioctl = 39, "ioctl";
    /// Poll for readiness.
    Poll = 40, "poll";
    /// Data requested by a retrieve notification. No reply.
    NotifyReply = 41, "notify_reply";
    /// Drop lookups of many nodes. No reply.
    BatchForget = 42, "batch_forget";
    /// Allocate, zero or punch a range.
    Fallocate = 43, "fallocate";
    /// Read directory records, each with a lookup.
    Readdirplus = 44, "readdirplus";
    /// Rename with flags.
    Rename2 = 45, "rename2";
    /// Find data or a hole.
    Lseek = 46, "lseek";
    /// Copy between files, at most 4 GiB.
    CopyFileRange = 47, "copy_file_range";
    /// Set up a DAX mapping.
    Setupmapping = 48, "setupmapping";
    /// Remove DAX mappings.
    Removemapping = 49, "removemapping";
    /// Make the whole file system durable.
    Syncfs = 50, "syncfs";
    /// Create and open a file without a name.
    Tmpfile = 51, "tmpfile";
    /// Read attributes, statx style.
    Statx = 52, "statx";
    /// Copy between files, reply in 64 bits.
    CopyFileRange64 = 53, "copy_file_range_64";
}

impl Opcode {
    /// Number of opcodes.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the number on the wire.
    #[must_use]
    pub const fn as_raw(self) -> u32 {
        self as u32
    }

    /// Returns the position in [`Self::ALL`], below [`Self::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        INDEX[self as usize] as usize
    }

    /// Reports whether the caller waits for a reply. FORGET, BATCH_FORGET and NOTIFY_REPLY never have one (the kernel refuses
    /// it); INTERRUPT may be answered with EAGAIN, to have it sent again, or ENOSYS, to stop further ones.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::NotifyReply | Self::Interrupt)
    }
}

/// Maps the number on the wire to the position in the list.
const INDEX: [u8; 54] = {
    let mut table = [u8::MAX; 54];
    let mut i = 0;
    while i < Opcode::COUNT {
        table[Opcode::ALL[i] as usize] = i as u8;
        i += 1;
    }
    table
};

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}
