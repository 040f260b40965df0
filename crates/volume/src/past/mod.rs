//! What was: the log of a volume in the words of its users.

mod log;
pub mod moment;

pub use log::{Commit, Deed, Places, Reader, What};
