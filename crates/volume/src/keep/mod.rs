//! Looking after a volume: [`check`](check()) it, free what nothing speaks of ([`collect`]).
//!
//! Both go on while the volume is used, and need memory for a few words per directory and chunk.

mod check;
mod gc;
mod refs;
mod repair;
mod settings;

pub use check::{Checked, Depth, Problem, check};
pub use gc::{Collected, GRACE, History, collect};
pub use repair::{Repaired, repair};
pub use settings::{retention, set_retention};

use crate::content::ContentError;
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
}

/// Called with a word for what is done now, and how many of them are done.
pub type Progress<'a> = &'a (dyn Fn(&str, u64) + Sync);
