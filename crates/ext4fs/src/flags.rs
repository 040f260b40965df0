//! Inode flags and generation numbers for `lsattr` and `chattr`, by ioctl. The kernel has checked the caller. Setting the
//! immutable flag first writes out dirty data that was accepted before.

use shunt_ext4::layout::InodeFlags;
use shunt_ext4::{Inode, Kind};
use shunt_fuse::{Errno, IoctlArgs, IoctlReply, NodeId, Request};

use crate::Ext4;

const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
/// `FS_IOC_GETVERSION` and `EXT4_IOC_GETVERSION`, each for 64 and 32 bits.
const GETVERSION: [u32; 4] = [0x8008_7601, 0x8004_7601, 0x8008_6603, 0x8004_6603];

/// Flags that the kernel's ext4 shows to users.
const VISIBLE_FLAGS: u32 = 0x725b_dfff;

/// `FS_XFLAG_*` bits and the corresponding inode flags.
const XFLAGS: [(u32, InodeFlags); 7] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJINHERIT),
    (0x8000, InodeFlags::DAX),
];

const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Flags that can be changed: those that take effect, and those that are only stored.
const CHANGEABLE_FLAGS: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT);

/// Returns the flags that an inode has after a command, or `None` for a command that changes none.
///
/// # Errors
/// EOPNOTSUPP for flags that cannot be changed, EINVAL for a command without its argument.
fn changed(inode: &Inode, command: u32, data: &[u8]) -> Result<Option<InodeFlags>, Errno> {
    let word = || data.first_chunk().copied().map(u32::from_ne_bytes).ok_or(Errno::INVAL);
    let requested = match command {
        FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => InodeFlags::from_bits_retain(word()?),
        FS_IOC_FSSETXATTR => {
            let (flags, mut requested) = (word()?, inode.flags);
            XFLAGS.iter().for_each(|(bit, flag)| requested.set(*flag, flags & bit != 0));
            requested
        }
        _ => return Ok(None),
    };
    let visible = InodeFlags::from_bits_retain(VISIBLE_FLAGS);
    if !((requested ^ inode.flags) & (visible - CHANGEABLE_FLAGS)).is_empty() {
        return Err(Errno::OPNOTSUPP);
    }
    let of_directories = InodeFlags::DIRSYNC | InodeFlags::TOPDIR | InodeFlags::PROJINHERIT;
    let usable =
        if inode.kind == Kind::Directory { CHANGEABLE_FLAGS } else { CHANGEABLE_FLAGS - of_directories };
    Ok(Some((inode.flags - usable) | (requested & usable)))
}

/// Size of `struct fsxattr` in bytes.
const FSXATTR_BYTES: usize = 28;

/// Returns the reply to a read-only command, or `None` for an unknown one.
fn answer(inode: &Inode, command: u32) -> Option<Vec<u8>> {
    Some(match command {
        FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => (inode.flags.bits() & VISIBLE_FLAGS).to_ne_bytes().into(),
        command if GETVERSION.contains(&command) => inode.generation.to_ne_bytes().into(),
        FS_IOC_FSGETXATTR => {
            let set = XFLAGS.iter().filter(|(_, flag)| inode.flags.contains(*flag));
            let mut answer = vec![0; FSXATTR_BYTES];
            answer[..4].copy_from_slice(&set.map(|(bit, _)| bit).sum::<u32>().to_ne_bytes());
            // The project id follows the flags, the extent size hint and the extent count.
            answer[12..16].copy_from_slice(&inode.project.to_ne_bytes());
            answer
        }
        _ => return None,
    })
}

impl Ext4 {
    pub(crate) async fn command(
        &self,
        request: &Request<'_>,
        node: NodeId,
        args: IoctlArgs<'_>,
    ) -> Result<IoctlReply, Errno> {
        let inode = self.inode(node)?;
        if let Some(flags) = changed(&inode, args.command, args.data)? {
            if flags.contains(InodeFlags::IMMUTABLE) {
                // Data that was already accepted is written out; later writes fail.
                self.write_out(request, node, 0).await?;
            }
            self.set_flags(&inode, flags)?;
            // The kernel caches the flags of statx, and requests attributes before a write only where they were invalidated.
            request.session().caches().invalidate_node(node, None);
            return Ok(IoctlReply::default());
        }
        let mut data = answer(&inode, args.command).ok_or(Errno::NOTTY)?;
        data.truncate(args.out_size as usize);
        Ok(IoctlReply { result: 0, data })
    }
}
