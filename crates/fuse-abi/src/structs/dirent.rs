//! Directory records in the replies to READDIR and READDIRPLUS.

use super::EntryOut;

wire! {
    /// Head of a directory record; the name follows, then zeros up to a multiple of 8 bytes.
    pub struct Dirent {
        /// Inode number as `readdir` shows it.
        pub ino: u64,
        /// Cookie of the position after this record.
        pub off: u64,
        /// Length of the name in bytes, without a NUL.
        pub namelen: u32,
        /// Type of the node (`DT_...`).
        pub r#type: u32,
    }

    /// Head of a directory record of READDIRPLUS; the name follows, then zeros up to a multiple of 8 bytes.
    pub struct Direntplus {
        /// The entry as in the reply to LOOKUP; node id 0 leaves it to a later LOOKUP.
        pub entry_out: EntryOut,
        /// The directory record.
        pub dirent: Dirent,
    }
}
