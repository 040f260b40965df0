//! The result of mapping a block of a file: a run of blocks, and where it lies on the device.

/// A run of blocks of a file with the same kind of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedRange {
    /// First block, numbered within the file.
    pub logical: u32,
    /// Number of blocks.
    pub length: u32,
    /// Mapping of the run.
    pub mapping: Mapping,
}

/// Mapping of a run to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mapping {
    /// Not allocated: reads as zeros.
    Hole,
    /// Written, starting at this block.
    Written(u64),
    /// Allocated at this block, but unwritten: reads as zeros.
    Unwritten(u64),
}
