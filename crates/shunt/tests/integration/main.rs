//! The command, as a user calls it.

#![allow(missing_docs)]

mod common;
mod life;
mod mistakes;
mod virtiofs;
