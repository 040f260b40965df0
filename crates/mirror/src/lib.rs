//! A directory shown again through FUSE, its file data passed through in the kernel.
//!
//! [`lower`] is the engine: a directory tree by node ids, which knows nothing of requests. [`Mirror`] is its thin face.
//!
//! ```no_run
//! use shunt_mirror::{CacheMode, Mirror, MirrorOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mirror = Mirror::open(MirrorOptions { cache: CacheMode::Exclusive, ..MirrorOptions::new("/srv/data") })?;
//! let config = mirror.config();
//! let options = shunt_fuse::mount::MountOptions::new();
//! shunt_fuse::mount(mirror, config, "/mnt".as_ref(), &options)?.wait()?;
//! # Ok(())
//! # }
//! ```

mod coherence;
mod error;
mod face;
pub mod lower;
mod mirror;
mod options;
mod pins;
mod policed;
mod prune;
mod takeover;

pub use coherence::{Caching, Heard, PROMISE};
pub use error::MirrorError;
pub use lower::idmap::IdMapError;
pub use lower::{IdMap, Memory};
pub use mirror::{Description, Mirror};
pub use options::{CacheMode, MirrorOptions, PassthroughMode, ReadTimes};
pub use policed::{AuditLog, Gate, Lease, Leases, Policed};
