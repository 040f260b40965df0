//! Maintenance of a volume: checking ([`fsck`](fsck())), repair, and garbage collection ([`collect`]).
//!
//! Checking and collection run while the volume is in use, and need memory for a few words per directory, chunk and pack.

mod clock_skew;
mod compact;
mod fsck;
mod fsck_report;
mod gc;
mod gc_report;
mod mark;
mod pack_intents;
mod repair;
mod retention;
mod sealed;
pub(crate) mod store_owner;
mod sweep;
pub mod volume_settings;

pub use fsck::{Depth, fsck};
pub use fsck_report::{Checked, Problem};
pub use gc::collect;
pub use gc_report::Collected;
pub use repair::{Repaired, repair};
pub use retention::{GRACE_PERIOD, LogRetention, retention, set_retention};
pub use store_owner::StoreOwnerError;

use crate::chunks::ContentError;
use crate::failpoint::{Failpoint, point};
use crate::store::StoreError;

/// Number of rows read at once.
const PAGE_ROWS: usize = 2000;

/// An error of maintenance.
#[derive(Debug, thiserror::Error)]
pub enum MaintenanceError {
    /// An error of the metadata store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the object store.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// The ownership of the contents' location.
    #[error(transparent)]
    StoreOwner(#[from] StoreOwnerError),
    /// The clock of this machine or of a store is wrong.
    #[error(
        "the clocks of this machine and of the store of {whose} differ by {minutes} minutes: nothing was collected, since \
         ages are unknown; correct the wrong clock"
    )]
    Clock {
        /// The data at the other clock: metadata or contents.
        whose: &'static str,
        /// The difference in minutes.
        minutes: u64,
    },
}

/// Called with the kind of objects being processed and the number of processed ones.
pub type Progress<'a> = &'a (dyn Fn(&str, u64) + Sync);

/// Stops at a failpoint that is armed, as a store that cannot be reached would.
fn stop(at: Failpoint) -> Result<(), StoreError> {
    point(at).map_err(|errno| StoreError::Unreachable(errno.to_string()))
}
