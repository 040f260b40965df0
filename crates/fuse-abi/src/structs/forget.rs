//! FORGET, BATCH_FORGET and INTERRUPT: requests without a reply.

wire! {
    /// Argument of FORGET.
    pub struct ForgetIn {
        /// Number of lookups to drop.
        pub nlookup: u64,
    }

    /// Head of BATCH_FORGET; `count` [`ForgetOne`] follow.
    pub struct BatchForgetIn {
        /// Number of items.
        pub count: u32,
        /// Zero.
        pub dummy: u32,
    }

    /// One item of BATCH_FORGET.
    pub struct ForgetOne {
        /// The node to forget.
        pub nodeid: u64,
        /// Number of lookups to drop.
        pub nlookup: u64,
    }

    /// Argument of INTERRUPT.
    pub struct InterruptIn {
        /// `unique` of the request whose caller was interrupted.
        pub unique: u64,
    }
}
