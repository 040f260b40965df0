//! Tests of the wire types through their public interface.

mod common;
mod corpus;
mod encoding;
mod errors;
mod literal;
mod roundtrip;
