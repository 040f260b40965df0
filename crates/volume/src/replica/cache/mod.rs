//! The cache policy of a replica: which contents are pinned, downloaded and evicted, with statistics.

pub(crate) mod cache_manager;
pub(crate) mod cache_stats;
pub(crate) mod eviction;
#[cfg(test)]
pub(crate) mod eviction_tests;
pub(crate) mod offline_misses;
mod pin;
