//! Helpers shared by the tests.

mod image;
mod populate;
mod shutdown;
mod tree;

pub use image::{Image, run};
pub use populate::populate;
pub use shutdown::{Log, shutdown};
pub use tree::{InodeProperties, Tree, digest, seen_by_engine, seen_by_kernel};
