//! What command lines are made of.

mod cache;
mod ids;
mod log;
mod mount;
mod options;
mod passthrough;

pub use cache::CacheArg;
pub use ids::IdRule;
pub use log::LogArgs;
pub use mount::{MountArgs, Transport};
pub use options::expand;
pub use passthrough::PassthroughArg;
