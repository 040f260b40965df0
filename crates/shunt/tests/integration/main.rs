//! The command, as a user calls it.

#![allow(missing_docs)]

mod cli_errors;
mod common;
mod lifecycle;
mod virtiofs;
