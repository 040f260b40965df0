//! A kernel in a box: drives a FUSE server over the wire without a mount.
