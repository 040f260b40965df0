//! Files whose extents on a block device are chosen by this process. The kernel reads them directly from the device; only the
//! mapping passes through user space, once.
//!
//! Requires the kernel module `shunt_extmap` (`kernel/extmap`). The files it creates are regular files, which FUSE passthrough
//! accepts as backing files.
//!
//! ```no_run
//! use std::io::Read;
//! use shunt_extmap::{Connection, Extent};
//!
//! let disk = std::fs::File::open("/dev/vdb")?;
//! let connection = Connection::bind(&disk, 4096)?;
//! let file = connection.file(6000)?;
//! file.push(&[Extent { offset: 0, device: 1 << 20, length: 8192, written: true }])?;
//! let mut content = Vec::new();
//! std::fs::File::from(file.into_fd()).read_to_end(&mut content)?;
//! assert_eq!(content.len(), 6000);
//! # Ok::<(), std::io::Error>(())
//! ```

#![deny(missing_docs)]

mod calls;
mod connection;
mod loop_device;

pub use connection::{BlockedRange, Connection, Extent, MappedFile, Request, Settled, Upcall, is_available};
pub use loop_device::{attach, attach_exclusive, attach_writable};
