//! The tree of names as file-system calls see and change it: dentries, attributes, extended attributes and quota.

pub(crate) mod dentries;
pub(crate) mod lookup_count;
#[cfg(test)]
mod quota_tests;
pub(crate) mod setattr;
pub(crate) mod usage_check;
mod xattr;
