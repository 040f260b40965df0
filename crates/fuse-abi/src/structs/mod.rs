//! The structures of the wire, one file per family of operations.

/// Declares wire structures: C layout, every bit pattern valid, no implicit padding. The assertions refuse any other.
macro_rules! wire {
    ($(
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        // Padding would make the sizes differ.
        const _: () = assert!(size_of::<$name>() == 0 $(+ size_of::<$type>())*);
        const _: () = {
            const fn is_plain<T: bytemuck::Pod>() {}
            $(is_plain::<$type>();)*
        };

        #[expect(unsafe_code, reason = "the assertions above are the condition: fields that are plain, and nothing between them")]
        // SAFETY: All fields may be zero.
        unsafe impl bytemuck::Zeroable for $name {}
        #[expect(unsafe_code, reason = "as above")]
        // SAFETY: C layout without padding; any bytes are a value of each field.
        unsafe impl bytemuck::Pod for $name {}

        impl Default for $name {
            fn default() -> Self {
                bytemuck::Zeroable::zeroed()
            }
        }
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
