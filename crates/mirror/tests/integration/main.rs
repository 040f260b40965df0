//! The mirror as a library, on real mounts.

mod mount;
