//! Presents the history of a volume: the log as operations on paths, past versions at a path, and past states of the tree. It
//! builds on the queries of a store's [`History`](crate::store::history::History), and is read-only.

mod log;
pub mod timestamp;
mod versions;
mod view;

pub use log::{Commit, NameSource, OpKind, Operation, Reader};
pub use versions::{PathVersion, versions, versions_of_name};
pub use view::{HISTORY, PointInTime, View, errno};
