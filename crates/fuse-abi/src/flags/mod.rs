//! Sets of flags, one file each. `from_bits_retain` keeps unknown bits.

mod attr;
mod expire;
mod fsync;
mod getattr;
mod init;
mod ioctl;
mod lk;
mod open;
mod open_out;
mod poll;
mod read;
mod release;
mod setattr;
mod setupmapping;
mod setxattr;
mod write;

pub use attr::AttrFlags;
pub use expire::ExpireFlags;
pub use fsync::FsyncFlags;
pub use getattr::GetattrFlags;
pub use init::InitFlags;
pub use ioctl::IoctlFlags;
pub use lk::LkFlags;
pub use open::OpenFlags;
pub use open_out::OpenOutFlags;
pub use poll::PollFlags;
pub use read::ReadFlags;
pub use release::ReleaseFlags;
pub use setattr::SetattrValid;
pub use setupmapping::SetupmappingFlags;
pub use setxattr::SetxattrFlags;
pub use write::WriteFlags;
