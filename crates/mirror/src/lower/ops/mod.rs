//! File system operations of the engine, one file per topic.

mod attributes;
mod create;
mod data;
mod list;
mod lookup;
mod open;
mod reconnect;
mod remove;
mod search;
mod special;
mod xattr;

pub(crate) use attributes::{Changes, NewTime};
pub(crate) use data::{seek, sync};
pub use lookup::Found;
pub use open::Opening;
pub(super) use open::{filter, writes};
pub(crate) use xattr::XattrAnswer;
