//! What the gate and the cache are locked with. In the model, a scheduler says who runs when.

#[cfg(all(test, feature = "model"))]
pub(super) use super::model::sync::{AtomicU32, AtomicU64, Condvar, Mutex, MutexGuard};

#[cfg(not(all(test, feature = "model")))]
pub(super) use {
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::sync::atomic::{AtomicU32, AtomicU64},
};
