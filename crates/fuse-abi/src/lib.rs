//! The FUSE wire format: structures, opcodes and flags, parsed without panics.
