//! The io_uring transport (7.42): the command in a submission entry, and the header buffer of a ring entry.

wire! {
    /// The ring's own part of [`UringReqHeader`].
    pub struct UringEntInOut {
        /// [`crate::consts::URING_ENT_ZERO_COPY`] or nothing.
        pub flags: u64,
        /// Id to return in [`UringCmdReq::commit_id`] with the reply.
        pub commit_id: u64,
        /// Bytes used in the payload buffer.
        pub payload_sz: u32,
        /// With a buffer pool (7.46) the offset of the payload in the pool in bytes, otherwise zero.
        pub offset: u32,
        /// Zero.
        pub reserved: u64,
    }

    /// Contents of the 80-byte command area of the submission entry.
    pub struct UringCmdReq {
        /// [`crate::consts::URING_ZERO_COPY`] or nothing for [`crate::consts::IO_URING_CMD_ADD_QUEUE`], otherwise zero.
        pub flags: u64,
        /// Id from [`UringEntInOut::commit_id`].
        pub commit_id: u64,
        /// Queue, which is a CPU number.
        pub qid: u16,
        /// Zero.
        pub padding: [u8; 6],
    }

    /// The command area of 7.46 for [`crate::consts::IO_URING_CMD_ADD_BUFPOOL`]. For the register command the two low
    /// bytes of `uaddr` are the slot that takes the pages of a zero-copy request.
    pub struct UringBufpoolReq {
        /// The common part.
        pub cmd: UringCmdReq,
        /// Address of the pool.
        pub uaddr: u64,
        /// Length of the pool in bytes.
        pub len: u32,
        /// Zero.
        pub reserved: u32,
    }

    /// The header buffer of a ring entry: request in, reply out.
    pub struct UringReqHeader {
        /// [`crate::InHeader`] of the request; [`crate::OutHeader`] of the reply.
        pub in_out: [u8; 128],
        /// First argument of the request.
        pub op_in: [u8; 128],
        /// The ring's own part.
        pub ring_ent_in_out: UringEntInOut,
    }
}
