//! Synchronisation: pushes local changes of a replica to a store, and pulls the store's log into the replica.
//!
//! The base version changes only by replaying the log, which includes this node's own commits. A lost reply is therefore
//! harmless, and a node that was killed at any point resumes where it was.

mod outbox;
mod resync;
mod round;
mod sync_replica;
mod verified_log;
mod worker;

pub use round::{Step, Synchroniser};
pub(crate) use sync_replica::refused;
pub use sync_replica::{LogFingerprint, Outbox, SyncError, SyncReplica};
pub use worker::{LinkState, Progress, RoundObserver, Runner, Waker};
