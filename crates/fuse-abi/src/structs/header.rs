//! The headers of every request and every reply.

use crate::consts::UNIQUE_RESEND;

wire! {
    /// Header of every request.
    pub struct InHeader {
        /// Length of the whole request in bytes, this header included.
        pub len: u32,
        /// Opcode; see [`crate::Opcode`].
        pub opcode: u32,
        /// Id of the request, repeated in the reply. Bit 63 marks a resent request.
        pub unique: u64,
        /// The node that the request is on; 0 where there is none.
        pub nodeid: u64,
        /// User id of the caller (fsuid), or [`crate::consts::INVALID_UIDGID`] where it cannot be mapped.
        pub uid: u32,
        /// Group id of the caller (fsgid), or [`crate::consts::INVALID_UIDGID`] where it cannot be mapped.
        pub gid: u32,
        /// Thread id of the caller in the pid namespace of the mount; 0 where it is not visible or there is none.
        pub pid: u32,
        /// Length of the extensions at the end of the request, in units of 8 bytes (7.38).
        pub total_extlen: u16,
        /// Zero.
        pub padding: u16,
    }

    /// Header of every reply and every notification.
    pub struct OutHeader {
        /// Length of the whole message in bytes, this header included.
        pub len: u32,
        /// 0 or a negative errno in a reply; the [`crate::NotifyCode`] in a notification.
        pub error: i32,
        /// `unique` of the request that the reply is for; 0 in a notification.
        pub unique: u64,
    }
}

impl InHeader {
    /// Size of the header in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// Reports whether the kernel resent this request after `NOTIFY_RESEND`. It may have been executed already.
    #[must_use]
    pub const fn is_resend(&self) -> bool {
        self.unique & UNIQUE_RESEND != 0
    }

    /// Returns the id for the reply: `unique` as received, including bit 63, because the kernel searches for that value.
    #[must_use]
    pub const fn request_id(&self) -> u64 {
        self.unique
    }

    /// Returns the id of the request when it was first sent: `unique` without bit 63.
    #[must_use]
    pub const fn original_id(&self) -> u64 {
        self.unique & !UNIQUE_RESEND
    }
}

impl OutHeader {
    /// Size of the header in bytes.
    pub const SIZE: usize = size_of::<Self>();

    /// Makes the header of a successful reply with `payload` bytes after it. `None` if the length exceeds 32 bits.
    #[must_use]
    pub const fn ok(unique: u64, payload: usize) -> Option<Self> {
        match Self::SIZE.checked_add(payload) {
            Some(len) if len <= u32::MAX as usize => Some(Self { len: len as u32, error: 0, unique }),
            _ => None,
        }
    }

    /// Makes a complete error reply. `errno` is positive; the kernel refuses values of 512 and above.
    #[must_use]
    pub const fn error(unique: u64, errno: i32) -> Self {
        Self { len: Self::SIZE as u32, error: errno.wrapping_neg(), unique }
    }
}
