//! The operations, by topic.

mod attributes;
mod create;
mod data;
mod list;
mod lookup;
mod open;
mod remove;
mod special;
mod xattr;

pub use attributes::{Changes, NewTime};
pub use data::{seek, sync};
pub use lookup::Found;
pub use open::Opening;
pub use xattr::XattrAnswer;
