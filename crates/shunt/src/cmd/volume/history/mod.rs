//! Shows and restores versions of the paths in a mounted volume: its log, earlier versions, and versions in conflict.

pub(super) mod conflicts;
pub(super) mod log;
pub(super) mod restore;
pub(super) mod versions;
