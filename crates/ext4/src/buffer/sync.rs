//! Synchronisation primitives of the running transaction and the cache. The model checker replaces them by those of its
//! scheduler.

#[cfg(all(test, feature = "model"))]
pub(super) use super::model::sync::{AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard};

#[cfg(not(all(test, feature = "model")))]
pub(super) use {
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::sync::atomic::{AtomicU32, AtomicU64},
};
