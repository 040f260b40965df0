//! Synchronisation: pushes local changes of a replica to a store, and pulls the store's log into the replica.
//!
//! The base version changes only by replaying the log, which includes this node's own commits. A lost reply is therefore
//! harmless, and a node that was killed at any point resumes where it was.

mod followed;
mod outbox;
mod resync;
mod runner;
mod site;
mod step;

pub use runner::{LinkState, Progress, RoundObserver, Runner, Waker};
pub(crate) use site::refused;
pub use site::{Contents, LogFingerprint, Outbox, SyncError, SyncReplica};
pub use step::{Step, Synchroniser};
