//! Blocks of extended attributes that several inodes may share, by the hash of their content.

use std::collections::HashMap;

/// Shareable attribute blocks, by the hash of their content. Locked while a reference count changes, so that no block is shared
/// while it is being freed.
#[derive(Debug, Default)]
pub(crate) struct XattrBlockCache(pub(crate) HashMap<u32, u64>);
