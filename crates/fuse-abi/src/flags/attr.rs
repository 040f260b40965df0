use bitflags::bitflags;

bitflags! {
    /// Flags of [`crate::Attr`].
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u32 {
        /// The node is the root of a submount (7.32).
        const SUBMOUNT = 1 << 0;
        /// Use DAX for this file (7.36).
        const DAX = 1 << 1;
    }
}
