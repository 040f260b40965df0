//! Lists of small structures at the end of a request.

use std::fmt;
use std::marker::PhantomData;

use bytemuck::cast_slice;

use crate::{ForgetOne, RemovemappingOne, Wire};

/// Iterator over the items of BATCH_FORGET.
pub type ForgetItems<'a> = Items<'a, ForgetOne>;
/// Iterator over the items of REMOVEMAPPING.
pub type MappingItems<'a> = Items<'a, RemovemappingOne>;

/// Iterator over an array of structures, aligned or not.
pub struct Items<'a, T> {
    /// Always a whole number of items.
    bytes: &'a [u8],
    item: PhantomData<T>,
}

impl<'a, T> Items<'a, T> {
    /// Makes an iterator. `bytes` must be a whole number of items; an incomplete one at the end is never reached.
    pub(crate) const fn from_bytes(bytes: &'a [u8]) -> Self {
        Self { bytes, item: PhantomData }
    }

    /// Returns the items that have not been taken yet, as bytes.
    pub(crate) const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a, T: Wire> Items<'a, T> {
    /// Makes an iterator over `items`.
    #[must_use]
    pub fn new(items: &'a [T]) -> Self {
        Self::from_bytes(cast_slice(items))
    }
}

impl<T: Wire> Iterator for Items<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let (item, rest) = T::read_from_prefix(self.bytes)?;
        self.bytes = rest;
        Some(item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.bytes.len() / size_of::<T>();
        (len, Some(len))
    }
}

impl<T: Wire> ExactSizeIterator for Items<'_, T> {}

impl<T> Clone for Items<'_, T> {
    fn clone(&self) -> Self {
        Self::from_bytes(self.bytes)
    }
}

impl<T> PartialEq for Items<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Items<'_, T> {}

impl<T: Wire + fmt::Debug> fmt::Debug for Items<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.clone()).finish()
    }
}
