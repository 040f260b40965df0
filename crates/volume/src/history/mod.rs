//! What was: the log of a volume in the words of its users, and its trees as they were.

mod log;
pub mod timestamp;
mod versions;
mod view;

pub use log::{Commit, OpKind, Operation, Places, Reader};
pub use versions::{PathVersion, versions, versions_of_name};
pub use view::{HISTORY, PointInTime, View, errno};
