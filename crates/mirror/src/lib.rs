//! A directory shown again through FUSE, its file data passed through in the kernel.

pub mod lower;
