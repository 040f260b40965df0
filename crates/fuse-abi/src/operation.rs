//! The operation of a request, with its decoded arguments.

use std::ffi::CStr;

use crate::{
    AccessIn, BmapIn, CopyFileRangeIn, CreateIn, FallocateIn, FlushIn, ForgetItems, FsyncIn, GetattrIn,
    GetxattrIn, InitIn, IoctlIn, LkIn, LseekIn, MappingItems, MkdirIn, MknodIn, Name, NotifyRetrieveIn,
    Opcode, OpenIn, PollIn, ReadIn, ReleaseIn, SetattrIn, SetupmappingIn, SetxattrIn, StatxIn, WriteIn,
};

/// An operation with its arguments, one variant per [`Opcode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Look up a name in the header's node.
    Lookup {
        /// The name; `.` and `..` for NFS and file handles.
        name: Name<'a>,
    },
    /// Drop lookups of the header's node. No reply.
    Forget {
        /// Number of lookups.
        nlookup: u64,
    },
    /// Read attributes.
    Getattr {
        /// The argument.
        arg: GetattrIn,
    },
    /// Change attributes.
    Setattr {
        /// The argument.
        arg: SetattrIn,
    },
    /// Read the target of a symbolic link.
    Readlink,
    /// Create a symbolic link.
    Symlink {
        /// Its name.
        name: Name<'a>,
        /// Its target, any bytes.
        target: &'a CStr,
    },
    /// Create a file, device node, FIFO or socket.
    Mknod {
        /// The argument.
        arg: MknodIn,
        /// Its name.
        name: Name<'a>,
    },
    /// Create a directory.
    Mkdir {
        /// The argument.
        arg: MkdirIn,
        /// Its name.
        name: Name<'a>,
    },
    /// Remove a name.
    Unlink {
        /// The name.
        name: Name<'a>,
    },
    /// Remove a directory.
    Rmdir {
        /// The name.
        name: Name<'a>,
    },
    /// Rename without flags.
    Rename {
        /// Node of the new parent.
        newdir: u64,
        /// Always 0.
        flags: u32,
        /// Old name in the header's node.
        name: Name<'a>,
        /// New name.
        newname: Name<'a>,
    },
    /// Create a hard link in the header's node.
    Link {
        /// The node that gets another name.
        oldnodeid: u64,
        /// New name.
        newname: Name<'a>,
    },
    /// Open a file.
    Open {
        /// The argument.
        arg: OpenIn,
    },
    /// Read data.
    Read {
        /// The argument.
        arg: ReadIn,
    },
    /// Write data.
    Write {
        /// The argument.
        arg: WriteIn,
        /// The data, `arg.size` bytes.
        data: &'a [u8],
    },
    /// Read the statistics of the file system.
    Statfs,
    /// The last descriptor of an open file was closed.
    Release {
        /// The argument.
        arg: ReleaseIn,
    },
    /// Make a file durable.
    Fsync {
        /// The argument.
        arg: FsyncIn,
    },
    /// Set an extended attribute.
    Setxattr {
        /// The argument; the short form is decoded with flags 0.
        arg: SetxattrIn,
        /// Its name, 1 to 255 bytes.
        name: &'a CStr,
        /// The value, `arg.size` bytes.
        value: &'a [u8],
    },
    /// Read an extended attribute.
    Getxattr {
        /// The argument.
        arg: GetxattrIn,
        /// Its name, 1 to 255 bytes.
        name: &'a CStr,
    },
    /// List the extended attributes.
    Listxattr {
        /// The argument.
        arg: GetxattrIn,
    },
    /// Remove an extended attribute.
    Removexattr {
        /// Its name, 1 to 255 bytes.
        name: &'a CStr,
    },
    /// A descriptor was closed.
    Flush {
        /// The argument.
        arg: FlushIn,
    },
    /// Negotiate version and capabilities.
    Init {
        /// The argument; fields that an old kernel left out are 0.
        arg: InitIn,
    },
    /// Open a directory.
    Opendir {
        /// The argument.
        arg: OpenIn,
    },
    /// Read directory records.
    Readdir {
        /// The argument.
        arg: ReadIn,
    },
    /// The last descriptor of an open directory was closed.
    Releasedir {
        /// The argument.
        arg: ReleaseIn,
    },
    /// Make a directory durable.
    Fsyncdir {
        /// The argument.
        arg: FsyncIn,
    },
    /// Test for a lock.
    Getlk {
        /// The argument.
        arg: LkIn,
    },
    /// Take or release a lock.
    Setlk {
        /// The argument.
        arg: LkIn,
    },
    /// Wait for a lock and take it.
    Setlkw {
        /// The argument.
        arg: LkIn,
    },
    /// Check permissions.
    Access {
        /// The argument.
        arg: AccessIn,
    },
    /// Create and open a file.
    Create {
        /// The argument.
        arg: CreateIn,
        /// Its name.
        name: Name<'a>,
    },
    /// The caller of a request was interrupted.
    Interrupt {
        /// Id of that request.
        unique: u64,
    },
    /// Map a block of a file to a block of the device.
    Bmap {
        /// The argument.
        arg: BmapIn,
    },
    /// The file system was unmounted.
    Destroy,
    /// Device control.
    Ioctl {
        /// The argument.
        arg: IoctlIn,
        /// The caller's data, `arg.in_size` bytes.
        data: &'a [u8],
    },
    /// Poll for readiness.
    Poll {
        /// The argument.
        arg: PollIn,
    },
    /// Data requested by a retrieve notification. No reply.
    NotifyReply {
        /// The argument.
        arg: NotifyRetrieveIn,
        /// The data, `arg.size` bytes.
        data: &'a [u8],
    },
    /// Drop lookups of many nodes. No reply.
    BatchForget {
        /// Nodes and numbers of lookups.
        items: ForgetItems<'a>,
    },
    /// Allocate, zero or punch a range.
    Fallocate {
        /// The argument.
        arg: FallocateIn,
    },
    /// Read directory records, each with a lookup.
    Readdirplus {
        /// The argument.
        arg: ReadIn,
    },
    /// Rename with flags.
    Rename2 {
        /// Node of the new parent.
        newdir: u64,
        /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
        flags: u32,
        /// Old name in the header's node.
        name: Name<'a>,
        /// New name.
        newname: Name<'a>,
    },
    /// Find data or a hole.
    Lseek {
        /// The argument.
        arg: LseekIn,
    },
    /// Copy between files; the reply has 32 bits.
    CopyFileRange {
        /// The argument.
        arg: CopyFileRangeIn,
    },
    /// Set up a DAX mapping.
    Setupmapping {
        /// The argument.
        arg: SetupmappingIn,
    },
    /// Remove DAX mappings.
    Removemapping {
        /// The mappings.
        items: MappingItems<'a>,
    },
    /// Make the whole file system durable.
    Syncfs,
    /// Create and open a file without a name. The kernel sends the name `/`, which has no meaning.
    Tmpfile {
        /// The argument.
        arg: CreateIn,
    },
    /// Read attributes, statx style.
    Statx {
        /// The argument.
        arg: StatxIn,
    },
    /// Copy between files; the reply has 64 bits.
    CopyFileRange64 {
        /// The argument.
        arg: CopyFileRangeIn,
    },
}

impl Operation<'_> {
    /// Returns the opcode.
    #[must_use]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Lookup { .. } => Opcode::Lookup,
            Self::Forget { .. } => Opcode::Forget,
            Self::Getattr { .. } => Opcode::Getattr,
            Self::Setattr { .. } => Opcode::Setattr,
            Self::Readlink => Opcode::Readlink,
            Self::Symlink { .. } => Opcode::Symlink,
            Self::Mknod { .. } => Opcode::Mknod,
            Self::Mkdir { .. } => Opcode::Mkdir,
            Self::Unlink { .. } => Opcode::Unlink,
            Self::Rmdir { .. } => Opcode::Rmdir,
            Self::Rename { .. } => Opcode::Rename,
            Self::Link { .. } => Opcode::Link,
            Self::Open { .. } => Opcode::Open,
            Self::Read { .. } => Opcode::Read,
            Self::Write { .. } => Opcode::Write,
            Self::Statfs => Opcode::Statfs,
            Self::Release { .. } => Opcode::Release,
            Self::Fsync { .. } => Opcode::Fsync,
            Self::Setxattr { .. } => Opcode::Setxattr,
            Self::Getxattr { .. } => Opcode::Getxattr,
            Self::Listxattr { .. } => Opcode::Listxattr,
            Self::Removexattr { .. } => Opcode::Removexattr,
            Self::Flush { .. } => Opcode::Flush,
            Self::Init { .. } => Opcode::Init,
            Self::Opendir { .. } => Opcode::Opendir,
            Self::Readdir { .. } => Opcode::Readdir,
            Self::Releasedir { .. } => Opcode::Releasedir,
            Self::Fsyncdir { .. } => Opcode::Fsyncdir,
            Self::Getlk { .. } => Opcode::Getlk,
            Self::Setlk { .. } => Opcode::Setlk,
            Self::Setlkw { .. } => Opcode::Setlkw,
            Self::Access { .. } => Opcode::Access,
            Self::Create { .. } => Opcode::Create,
            Self::Interrupt { .. } => Opcode::Interrupt,
            Self::Bmap { .. } => Opcode::Bmap,
            Self::Destroy => Opcode::Destroy,
            Self::Ioctl { .. } => Opcode::Ioctl,
            Self::Poll { .. } => Opcode::Poll,
            Self::NotifyReply { .. } => Opcode::NotifyReply,
            Self::BatchForget { .. } => Opcode::BatchForget,
            Self::Fallocate { .. } => Opcode::Fallocate,
            Self::Readdirplus { .. } => Opcode::Readdirplus,
            Self::Rename2 { .. } => Opcode::Rename2,
            Self::Lseek { .. } => Opcode::Lseek,
            Self::CopyFileRange { .. } => Opcode::CopyFileRange,
            Self::Setupmapping { .. } => Opcode::Setupmapping,
            Self::Removemapping { .. } => Opcode::Removemapping,
            Self::Syncfs => Opcode::Syncfs,
            Self::Tmpfile { .. } => Opcode::Tmpfile,
            Self::Statx { .. } => Opcode::Statx,
            Self::CopyFileRange64 { .. } => Opcode::CopyFileRange64,
        }
    }
}
