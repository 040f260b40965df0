//! The result of mapping a block of a file: a run of blocks, and where it lies on the device.

/// A run of blocks of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedRange {
    /// First block in the file.
    pub logical: u32,
    /// Blocks.
    pub length: u32,
    /// Where they lie.
    pub place: Mapping,
}

/// Where a run lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Nowhere: reads as zeros.
    Hole,
    /// From this block on.
    Written(u64),
    /// From this block on, but never written: reads as zeros.
    Unwritten(u64),
}
