//! Locks for `buffer::sync`, scheduled by the model checker.

use std::ops::{Deref, DerefMut};

pub(in crate::buffer) use shuttle::sync::atomic::{AtomicU32, AtomicU64};

#[derive(Debug, Default)]
pub(in crate::buffer) struct Mutex<T>(shuttle::sync::Mutex<T>);

/// `None` only while waiting on a condition variable.
pub(in crate::buffer) struct MutexGuard<'a, T>(Option<shuttle::sync::MutexGuard<'a, T>>);

#[derive(Debug)]
pub(in crate::buffer) struct Condvar(shuttle::sync::Condvar);

impl<T> Mutex<T> {
    pub(in crate::buffer) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(in crate::buffer) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

impl Condvar {
    pub(in crate::buffer) fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    pub(in crate::buffer) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.0 = guard.0.take().map(|held| self.0.wait(held).unwrap());
    }

    pub(in crate::buffer) fn notify_all(&self) {
        self.0.notify_all();
    }
}
