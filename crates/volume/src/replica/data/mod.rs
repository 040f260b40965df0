//! The contents of files: backing files, what opens them, and what fetches them from the store.

pub(crate) mod backing;
pub(crate) mod backing_pool;
#[cfg(test)]
mod backing_pool_tests;
mod basis;
pub(crate) mod fetch;
pub(crate) mod open_file;
pub(crate) mod prefetch;
#[cfg(test)]
mod prefetch_tests;
mod probe;
mod refetch;
#[cfg(test)]
mod refetch_tests;
pub(crate) mod store_fetcher;
mod unsynced;
