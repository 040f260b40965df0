//! Tests of the `shunt` command.

#![allow(missing_docs)]

mod cli_errors;
mod common;
mod lifecycle;
mod virtiofs;
