//! Integration tests of the mirror library on real mounts.

mod mount;
