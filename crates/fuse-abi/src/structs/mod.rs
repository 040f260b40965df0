//! The structures of the wire, one file per family of operations.

/// Declares wire structures: C layout, every bit pattern valid, no implicit padding (the derives refuse it).
macro_rules! wire {
    ($($(#[$meta:meta])* pub struct $name:ident { $($body:tt)* })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::KnownLayout, zerocopy::Immutable,
        )]
        pub struct $name { $($body)* }
    )*};
}

mod attr;
mod backing;
mod create;
mod dirent;
mod ext;
mod file;
mod forget;
mod header;
mod init;
mod io;
mod ioctl;
mod lock;
mod mapping;
mod notify;
mod statfs;
mod statx;
mod uring;
mod xattr;

pub use attr::*;
pub use backing::*;
pub use create::*;
pub use dirent::*;
pub use ext::*;
pub use file::*;
pub use forget::*;
pub use header::*;
pub use init::*;
pub use io::*;
pub use ioctl::*;
pub use lock::*;
pub use mapping::*;
pub use notify::*;
pub use statfs::*;
pub use statx::*;
pub use uring::*;
pub use xattr::*;
