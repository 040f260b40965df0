//! What was: the log of a volume in the words of its users, and its trees as they were.

mod log;
pub mod moment;
mod versions;
mod view;

pub use log::{Commit, Deed, Places, Reader, What};
pub use versions::{PathVersion, versions, versions_of_name};
pub use view::{HISTORY, View, When, errno};
