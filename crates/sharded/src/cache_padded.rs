//! Padding that avoids false sharing of cache lines between processors.

use std::ops::Deref;

/// A value on cache lines of its own (two: processors prefetch pairs), so that writes to its neighbours do not invalidate it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
