//! Volumes on real mounts, served by this process.

mod size_coherence;
