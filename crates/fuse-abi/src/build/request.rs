//! Builder for requests, as the kernel would send them.

use crate::{
    BatchForgetIn, ForgetIn, InHeader, InterruptIn, LinkIn, Name, Operation, RemovemappingIn, Rename2In,
    RenameIn, Request, SetxattrInCompat, SyncfsIn, Wire,
};

/// Encodes operations, in the form of the current protocol.
#[derive(Debug, Clone, Default)]
pub struct RequestBuilder {
    header: InHeader,
    ext: Vec<u8>,
    setxattr_ext: bool,
}

impl RequestBuilder {
    /// Makes a builder for a request with this id on this node, from user, group and process 0.
    #[must_use]
    pub fn new(unique: u64, nodeid: u64) -> Self {
        Self::from_header(InHeader { unique, nodeid, ..InHeader::default() })
    }

    /// Makes a builder for a request with this header; lengths and opcode are filled in later.
    #[must_use]
    pub const fn from_header(header: InHeader) -> Self {
        Self { header, ext: Vec::new(), setxattr_ext: false }
    }

    /// Sets the caller.
    #[must_use]
    pub const fn caller(mut self, uid: u32, gid: u32, pid: u32) -> Self {
        self.header.uid = uid;
        self.header.gid = gid;
        self.header.pid = pid;
        self
    }

    /// Sets the extensions, for example from [`crate::ExtBuilder`]. They are padded to a multiple of 8; the header can express
    /// 524,280 bytes, and a request with more does not parse.
    #[must_use]
    pub fn extensions(mut self, ext: &[u8]) -> Self {
        self.ext = ext.to_vec();
        self.ext.resize(ext.len().next_multiple_of(8), 0);
        self
    }

    /// Sets the form of SETXATTR; see [`crate::ParseContext::setxattr_ext`].
    #[must_use]
    pub const fn setxattr_ext(mut self, on: bool) -> Self {
        self.setxattr_ext = on;
        self
    }

    /// Encodes the request. Sizes inside `operation` are written as they are, so that wrong ones can be tested, but the length in
    /// the header is right (and saturates at 32 bits).
    #[must_use]
    pub fn build(&self, operation: &Operation<'_>) -> Vec<u8> {
        let mut out = Out(vec![0; InHeader::SIZE]);
        self.body(operation, &mut out);
        out.bytes(&self.ext);
        let mut bytes = out.0;
        let header = InHeader {
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            opcode: operation.opcode().as_raw(),
            total_extlen: u16::try_from(self.ext.len() / 8).unwrap_or(u16::MAX),
            ..self.header
        };
        for (to, from) in bytes.iter_mut().zip(header.as_bytes()) {
            *to = *from;
        }
        bytes
    }

    fn body(&self, operation: &Operation<'_>, out: &mut Out) {
        use Operation as Op;
        match operation {
            Op::Readlink | Op::Statfs | Op::Destroy => {}
            Op::Syncfs => out.arg(&SyncfsIn::default()),
            Op::Lookup { name } | Op::Unlink { name } | Op::Rmdir { name } => out.name(*name),
            Op::Forget { nlookup } => out.arg(&ForgetIn { nlookup: *nlookup }),
            Op::Interrupt { unique } => out.arg(&InterruptIn { unique: *unique }),
            Op::Getattr { arg } => out.arg(arg),
            Op::Setattr { arg } => out.arg(arg),
            Op::Symlink { name, target } => {
                out.name(*name);
                out.bytes(target.to_bytes_with_nul());
            }
            Op::Mknod { arg, name } => out.named(arg, *name),
            Op::Mkdir { arg, name } => out.named(arg, *name),
            Op::Create { arg, name } => out.named(arg, *name),
            Op::Tmpfile { arg } => {
                out.arg(arg);
                out.bytes(b"/\0");
            }
            Op::Rename { newdir, flags: _, name, newname } => {
                out.named(&RenameIn { newdir: *newdir }, *name);
                out.name(*newname);
            }
            Op::Rename2 { newdir, flags, name, newname } => {
                out.named(&Rename2In { newdir: *newdir, flags: *flags, padding: 0 }, *name);
                out.name(*newname);
            }
            Op::Link { oldnodeid, newname } => out.named(&LinkIn { oldnodeid: *oldnodeid }, *newname),
            Op::Open { arg } | Op::Opendir { arg } => out.arg(arg),
            Op::Read { arg } | Op::Readdir { arg } | Op::Readdirplus { arg } => out.arg(arg),
            Op::Write { arg, data } => {
                out.arg(arg);
                out.bytes(data);
            }
            Op::Release { arg } | Op::Releasedir { arg } => out.arg(arg),
            Op::Fsync { arg } | Op::Fsyncdir { arg } => out.arg(arg),
            Op::Setxattr { arg, name, value } => {
                if self.setxattr_ext {
                    out.arg(arg);
                } else {
                    out.arg(&SetxattrInCompat { size: arg.size, flags: arg.flags });
                }
                out.bytes(name.to_bytes_with_nul());
                out.bytes(value);
            }
            Op::Getxattr { arg, name } => {
                out.arg(arg);
                out.bytes(name.to_bytes_with_nul());
            }
            Op::Listxattr { arg } => out.arg(arg),
            Op::Removexattr { name } => out.bytes(name.to_bytes_with_nul()),
            Op::Flush { arg } => out.arg(arg),
            Op::Init { arg } => out.arg(arg),
            Op::Getlk { arg } | Op::Setlk { arg } | Op::Setlkw { arg } => out.arg(arg),
            Op::Access { arg } => out.arg(arg),
            Op::Bmap { arg } => out.arg(arg),
            Op::Ioctl { arg, data } => {
                out.arg(arg);
                out.bytes(data);
            }
            Op::Poll { arg } => out.arg(arg),
            Op::NotifyReply { arg, data } => {
                out.arg(arg);
                out.bytes(data);
            }
            Op::BatchForget { items } => {
                out.arg(&BatchForgetIn { count: items.len() as u32, dummy: 0 });
                out.bytes(items.as_bytes());
            }
            Op::Fallocate { arg } => out.arg(arg),
            Op::Lseek { arg } => out.arg(arg),
            Op::CopyFileRange { arg } | Op::CopyFileRange64 { arg } => out.arg(arg),
            Op::Setupmapping { arg } => out.arg(arg),
            Op::Removemapping { items } => {
                out.arg(&RemovemappingIn { count: items.len() as u32 });
                out.bytes(items.as_bytes());
            }
            Op::Statx { arg } => out.arg(arg),
        }
    }
}

impl Request<'_> {
    /// Encodes the request again, in the form of the current protocol.
    #[must_use]
    pub fn to_bytes(&self, setxattr_ext: bool) -> Vec<u8> {
        RequestBuilder::from_header(self.header)
            .extensions(self.ext.as_bytes())
            .setxattr_ext(setxattr_ext)
            .build(&self.operation)
    }
}

/// The encoded message.
struct Out(Vec<u8>);

impl Out {
    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn arg(&mut self, arg: &impl Wire) {
        self.bytes(arg.as_bytes());
    }

    fn name(&mut self, name: Name<'_>) {
        self.bytes(name.as_cstr().to_bytes_with_nul());
    }

    fn named(&mut self, arg: &impl Wire, name: Name<'_>) {
        self.arg(arg);
        self.name(name);
    }
}
