//! Carries changes between a replica and a store.
//!
//! The log of the store is the only way by which what both sides agree on changes: also what this node committed is
//! learned from there. So an answer that was lost costs nothing, and a node that was killed at any point goes on where it
//! was.

mod followed;
mod resync;
mod runner;
mod site;
mod step;

pub use runner::{LinkState, Progress, RoundObserver, Runner, Waker};
pub(crate) use site::refused;
pub use site::{Contents, LogFingerprint, Outbox, SyncError, SyncReplica};
pub use step::{Step, Synchroniser};
