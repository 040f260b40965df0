//! Registration of backing files for passthrough.

wire! {
    /// Argument of the ioctl [`crate::consts::DEV_IOC_BACKING_OPEN`].
    pub struct BackingMap {
        /// Descriptor of the regular file that backs reads and writes.
        pub fd: i32,
        /// Zero.
        pub flags: u32,
        /// Zero.
        pub padding: u64,
    }
}
