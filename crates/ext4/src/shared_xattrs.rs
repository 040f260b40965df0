//! Blocks of extended attributes that several inodes may share, by the hash of their content.

use std::collections::HashMap;

/// Blocks that others may share, by the hash of what is in them. Held while a count changes, so that none is taken up
/// that is given back at the same moment.
#[derive(Debug, Default)]
pub(crate) struct SharedXattrs(pub(crate) HashMap<u32, u64>);
