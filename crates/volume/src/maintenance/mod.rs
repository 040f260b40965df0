//! Looking after a volume: [`fsck`](fsck()) it, free what nothing speaks of ([`collect`]).
//!
//! Both go on while the volume is used, and need memory for a few words per directory, chunk and pack.

mod clock_skew;
mod compact;
mod fsck;
mod fsck_report;
mod gc;
mod gc_report;
mod mark;
mod pack_intents;
mod repair;
mod sealed;
mod settings;
pub(crate) mod store_owner;
mod sweep;

pub use fsck::{Depth, fsck};
pub use fsck_report::{Checked, Problem};
pub use gc::collect;
pub use gc_report::Collected;
pub use repair::{Repaired, repair};
pub use settings::{GRACE, LogRetention, retention, set_retention};
pub use store_owner::StoreOwnerError;

use crate::content::ContentError;
use crate::failpoint::{Failpoint, point};
use crate::store::StoreError;

/// Rows that are asked for at once.
const PAGE: usize = 2000;

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The metadata.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The contents.
    #[error(transparent)]
    Content(#[from] ContentError),
    /// Where they are.
    #[error(transparent)]
    Place(#[from] StoreOwnerError),
    /// This machine's clock, or that of a store, is wrong.
    #[error(
        "the clocks of this machine and of where {whose} are differ by {minutes} minutes, so that what is old cannot be \
         told: nothing was collected. Set the one that is wrong"
    )]
    Clock {
        /// What is kept there.
        whose: &'static str,
        /// So far they are apart.
        minutes: u64,
    },
}

/// Called with a word for what is done now, and how many of them are done.
pub type Progress<'a> = &'a (dyn Fn(&str, u64) + Sync);

/// Stops at a failpoint that is armed, as a store that cannot be reached would.
fn stop(at: Failpoint) -> Result<(), StoreError> {
    point(at).map_err(|errno| StoreError::Unreachable(errno.to_string()))
}
