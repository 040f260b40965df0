//! Serves a local directory through FUSE, with kernel passthrough of file data.
//!
//! [`lower`] is the engine: a directory tree addressed by node ids, independent of FUSE requests. [`Mirror`] is the
//! thin FUSE layer above it.
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
mod fuse_ops;
mod hot_files;
pub mod lower;
mod mirror;
mod options;
mod pins;
mod prune;
mod search;
mod takeover;
mod takeover_marks;
mod writable_mmap;

pub use coherence::{COHERENCE_BOUND, Caching, EventCounters};
pub use error::MirrorError;
pub use fuse_ops::listing::ListingFilter;
pub use lower::idmap::IdMapError;
pub use lower::watch::check_fanotify;
pub use lower::{IdMap, Memory, ReadTimes};
pub use mirror::{Description, Mirror};
pub use options::{CacheMode, MirrorOptions, PassthroughMode};
pub use pins::Pins;
