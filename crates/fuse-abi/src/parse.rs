//! Parser for the body of a request: from the bytes after the header to an [`Operation`]. Sizes and counts must match the message
//! exactly; no operation but INIT may have bytes left over.

use crate::cursor::Cursor;
use crate::list::Items;
use crate::{
    BatchForgetIn, ForgetIn, ForgetOne, InterruptIn, LinkIn, MessagePart, Opcode, Operation, ParseError,
    RemovemappingIn, RemovemappingOne, Rename2In, RenameIn, SetxattrIn, SetxattrInCompat, SyncfsIn, consts,
};
use crate::{CreateIn, GetattrIn, InitIn, IoctlIn, MknodIn, NotifyRetrieveIn, ReadIn, WriteIn};

/// Results of the negotiation that change the form of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseContext {
    /// [`crate::InitFlags::SETXATTR_EXT`] was accepted.
    pub setxattr_ext: bool,
    /// The negotiated minor version. Below 12 some arguments are shorter.
    pub minor: u32,
}

impl Default for ParseContext {
    fn default() -> Self {
        Self { setxattr_ext: false, minor: consts::KERNEL_MINOR_VERSION }
    }
}

/// Parses the bytes between the header and the extensions.
pub(crate) fn operation<'a>(
    opcode: Opcode,
    body: &'a [u8],
    ctx: &ParseContext,
) -> Result<Operation<'a>, ParseError> {
    let mut c = Cursor::new(body);
    let operation = match opcode {
        Opcode::Lookup => Operation::Lookup { name: c.any_name(MessagePart::Name)? },
        Opcode::Forget => Operation::Forget { nlookup: c.arg::<ForgetIn>()?.nlookup },
        Opcode::Getattr => Operation::Getattr { arg: getattr(&mut c, ctx)? },
        Opcode::Setattr => Operation::Setattr { arg: c.arg()? },
        Opcode::Readlink => Operation::Readlink,
        Opcode::Symlink => Operation::Symlink {
            name: c.name(MessagePart::Name)?,
            target: c.cstr(MessagePart::Target, consts::SYMLINK_MAX)?,
        },
        Opcode::Mknod => Operation::Mknod { arg: mknod(&mut c, ctx)?, name: c.name(MessagePart::Name)? },
        Opcode::Mkdir => Operation::Mkdir { arg: c.arg()?, name: c.name(MessagePart::Name)? },
        Opcode::Unlink => Operation::Unlink { name: c.name(MessagePart::Name)? },
        Opcode::Rmdir => Operation::Rmdir { name: c.name(MessagePart::Name)? },
        Opcode::Rename => Operation::Rename {
            newdir: c.arg::<RenameIn>()?.newdir,
            flags: 0,
            name: c.name(MessagePart::Name)?,
            newname: c.name(MessagePart::NewName)?,
        },
        Opcode::Link => Operation::Link {
            oldnodeid: c.arg::<LinkIn>()?.oldnodeid,
            newname: c.name(MessagePart::NewName)?,
        },
        Opcode::Open => Operation::Open { arg: c.arg()? },
        Opcode::Read => Operation::Read { arg: read(&mut c, ctx)? },
        Opcode::Write => {
            let arg = write(&mut c, ctx)?;
            Operation::Write { arg, data: c.rest(MessagePart::Data, arg.size.into())? }
        }
        Opcode::Statfs => Operation::Statfs,
        Opcode::Release => Operation::Release { arg: c.arg()? },
        Opcode::Fsync => Operation::Fsync { arg: c.arg()? },
        Opcode::Setxattr => {
            let arg = setxattr(&mut c, ctx)?;
            let name = c.xattr_name()?;
            Operation::Setxattr { arg, name, value: c.rest(MessagePart::Data, arg.size.into())? }
        }
        Opcode::Getxattr => Operation::Getxattr { arg: c.arg()?, name: c.xattr_name()? },
        Opcode::Listxattr => Operation::Listxattr { arg: c.arg()? },
        Opcode::Removexattr => Operation::Removexattr { name: c.xattr_name()? },
        Opcode::Flush => Operation::Flush { arg: c.arg()? },
        Opcode::Init => Operation::Init { arg: init(&mut c)? },
        Opcode::Opendir => Operation::Opendir { arg: c.arg()? },
        Opcode::Readdir => Operation::Readdir { arg: read(&mut c, ctx)? },
        Opcode::Releasedir => Operation::Releasedir { arg: c.arg()? },
        Opcode::Fsyncdir => Operation::Fsyncdir { arg: c.arg()? },
        Opcode::Getlk => Operation::Getlk { arg: c.arg()? },
        Opcode::Setlk => Operation::Setlk { arg: c.arg()? },
        Opcode::Setlkw => Operation::Setlkw { arg: c.arg()? },
        Opcode::Access => Operation::Access { arg: c.arg()? },
        Opcode::Create => Operation::Create { arg: create(&mut c, ctx)?, name: c.name(MessagePart::Name)? },
        Opcode::Interrupt => Operation::Interrupt { unique: c.arg::<InterruptIn>()?.unique },
        Opcode::Bmap => Operation::Bmap { arg: c.arg()? },
        Opcode::Destroy => Operation::Destroy,
        Opcode::Ioctl => {
            let arg: IoctlIn = c.arg()?;
            Operation::Ioctl { arg, data: c.rest(MessagePart::Data, arg.in_size.into())? }
        }
        Opcode::Poll => Operation::Poll { arg: c.arg()? },
        Opcode::NotifyReply => {
            let arg: NotifyRetrieveIn = c.arg()?;
            Operation::NotifyReply { arg, data: c.rest(MessagePart::Data, arg.size.into())? }
        }
        Opcode::BatchForget => {
            let head: BatchForgetIn = c.arg()?;
            Operation::BatchForget { items: items::<ForgetOne>(&mut c, head.count)? }
        }
        Opcode::Fallocate => Operation::Fallocate { arg: c.arg()? },
        Opcode::Readdirplus => Operation::Readdirplus { arg: read(&mut c, ctx)? },
        Opcode::Rename2 => {
            let arg: Rename2In = c.arg()?;
            Operation::Rename2 {
                newdir: arg.newdir,
                flags: arg.flags,
                name: c.name(MessagePart::Name)?,
                newname: c.name(MessagePart::NewName)?,
            }
        }
        Opcode::Lseek => Operation::Lseek { arg: c.arg()? },
        Opcode::CopyFileRange => Operation::CopyFileRange { arg: c.arg()? },
        Opcode::Setupmapping => Operation::Setupmapping { arg: c.arg()? },
        Opcode::Removemapping => {
            let head: RemovemappingIn = c.arg()?;
            Operation::Removemapping { items: items::<RemovemappingOne>(&mut c, head.count)? }
        }
        Opcode::Syncfs => {
            c.arg::<SyncfsIn>()?;
            Operation::Syncfs
        }
        Opcode::Tmpfile => {
            let arg = c.arg()?;
            c.cstr(MessagePart::Name, consts::NAME_MAX)?;
            Operation::Tmpfile { arg }
        }
        Opcode::Statx => Operation::Statx { arg: c.arg()? },
        Opcode::CopyFileRange64 => Operation::CopyFileRange64 { arg: c.arg()? },
    };
    c.finish()?;
    Ok(operation)
}

/// Parses a list that must end where the request ends.
fn items<'a, T>(c: &mut Cursor<'a>, count: u32) -> Result<Items<'a, T>, ParseError> {
    let len = u64::from(count) * size_of::<T>() as u64;
    Ok(Items::from_bytes(c.rest(MessagePart::Items, len)?))
}

/// Parses INIT, which grew three times and may grow again: missing fields are zero, unknown fields are dropped.
fn init(c: &mut Cursor<'_>) -> Result<InitIn, ParseError> {
    const OLDEST: usize = 8;
    let arg = c.short_arg(c.left().clamp(OLDEST, size_of::<InitIn>()))?;
    c.skip();
    Ok(arg)
}

fn setxattr(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<SetxattrIn, ParseError> {
    if ctx.setxattr_ext { c.arg() } else { Ok(c.arg::<SetxattrInCompat>()?.into()) }
}

fn getattr(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<GetattrIn, ParseError> {
    if ctx.minor < 9 { c.short_arg(0) } else { c.arg() }
}

fn read(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<ReadIn, ParseError> {
    if ctx.minor < 9 { c.short_arg(24) } else { c.arg() }
}

fn write(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<WriteIn, ParseError> {
    if ctx.minor < 9 { c.short_arg(24) } else { c.arg() }
}

fn mknod(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<MknodIn, ParseError> {
    if ctx.minor < 12 { c.short_arg(8) } else { c.arg() }
}

fn create(c: &mut Cursor<'_>, ctx: &ParseContext) -> Result<CreateIn, ParseError> {
    if ctx.minor < 12 { c.short_arg(8) } else { c.arg() }
}
