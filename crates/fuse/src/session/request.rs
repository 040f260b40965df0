//! The caller of an operation: its credentials, its interrupt, and the record that makes the operation idempotent across a
//! takeover.

use std::future::Future;
use std::sync::Arc;

use shunt_fuse_abi as abi;

use crate::Errno;
use crate::id::{NodeId, RequestId};
use crate::session::Handle;
use crate::session::intent::Intent;
use crate::session::interrupt::Interrupt;
use crate::takeover::{BegunOperation, IntentData};

/// The caller's side of one operation.
///
/// Ids are those of the mount's user namespace. Requests of the kernel itself (write-back, RELEASE) carry pid 0 and the ids of
/// the process that caused them, or none.
pub struct Request<'a> {
    pub(crate) header: &'a abi::InHeader,
    pub(crate) extensions: &'a abi::Extensions<'a>,
    pub(crate) session: &'a Handle,
    pub(crate) interrupt: &'a Arc<Interrupt>,
    pub(crate) intent: &'a Intent,
}

impl Request<'_> {
    /// Returns the kernel's identifier of this request.
    pub fn id(&self) -> RequestId {
        RequestId(self.header.unique)
    }

    /// Returns the inode that the operation is on.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// Returns the file-system user id of the caller.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// Returns the file-system group id of the caller.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// Returns the process id of the caller, 0 where it has none in the server's pid namespace.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Returns the supplementary group for a new inode, where CREATE_SUPP_GROUP was negotiated and the parent's group is among
    /// the caller's.
    pub fn supplementary_groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.extensions.supplementary_groups()
    }

    /// Returns the security contexts (attribute name, value) for a new inode, where SECURITY_CTX was negotiated.
    pub fn security_contexts(&self) -> impl Iterator<Item = (&std::ffi::CStr, &[u8])> + '_ {
        self.extensions.security_contexts().map(|context| (context.name, context.value))
    }

    /// Reports whether the kernel resent this request after a takeover: the operation may have been executed already.
    pub fn is_resend(&self) -> bool {
        self.header.is_resend()
    }

    /// Returns the id that this request had when the kernel sent it first. Unlike [`id`](Self::id), it is the same when the request is
    /// resent, and no other request of the connection has it.
    pub fn first_id(&self) -> u64 {
        self.header.original_id()
    }

    /// Declares that an operation that is not idempotent is about to run. Call it last, right before the system call. `before`
    /// records the state that a later server needs to find out whether the operation was executed; it is called only where a
    /// takeover is possible and this request was not [begun](Self::begun) already.
    ///
    /// # Errors
    /// The error of `before`.
    pub fn begin(&self, before: impl FnOnce() -> Result<IntentData, Errno>) -> Result<(), Errno> {
        self.intent.begin(before)
    }

    /// Returns what an earlier server recorded about this request before it ended without a reply. `None`: it had begun nothing
    /// that must not run twice.
    pub fn begun(&self) -> Option<&BegunOperation> {
        self.intent.begun()
    }

    /// Returns the session: kernel caches, passthrough, negotiated features.
    pub fn session(&self) -> &Handle {
        self.session
    }

    /// Completes when a signal interrupts the caller.
    ///
    /// The session itself cancels operations that change nothing: it drops the handler's future, and the caller gets EINTR. A
    /// handler that changes something and waits uses this to stop at a point of its choice.
    pub fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        self.interrupt.clone().wait()
    }

    /// Reports whether a signal interrupted the caller.
    pub fn is_interrupted(&self) -> bool {
        // Until the handler first waits, its interrupt is recorded in `early_interrupts`.
        self.interrupt.is_set() || self.session.shared.early_interrupts.contains(self.header.unique)
    }
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.header.unique)
            .field("node", &self.header.nodeid)
            .field("uid", &self.header.uid)
            .field("gid", &self.header.gid)
            .field("pid", &self.header.pid)
            .finish()
    }
}
