//! Volumes on real mounts, served by this process.

mod told;
