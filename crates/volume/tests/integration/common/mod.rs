//! Modules that several tests share.

pub mod net;
pub mod seeds;
pub mod sky;
