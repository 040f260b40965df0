//! Tests of the wire types through their public interface.

mod build;
mod common;
mod corpus;
mod errors;
mod literal;
mod roundtrip;
