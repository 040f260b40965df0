//! Who asks, and whether they still want to know.

use std::future::Future;
use std::sync::Arc;

use shunt_fuse_abi as abi;

use crate::Errno;
use crate::id::{NodeId, RequestId};
use crate::session::Handle;
use crate::session::intent::Intent;
use crate::session::interrupt::Interrupt;
use crate::takeover::{Before, Begun};

/// The caller's side of one operation.
///
/// Ids are those of the mount's user namespace. A request of the kernel itself (write-back, RELEASE) carries pid 0 and
/// the ids of whoever caused it, or none.
pub struct Request<'a> {
    pub(crate) header: &'a abi::InHeader,
    pub(crate) extensions: &'a abi::Extensions<'a>,
    pub(crate) session: &'a Handle,
    pub(crate) interrupt: &'a Arc<Interrupt>,
    pub(crate) intent: &'a Intent,
}

impl Request<'_> {
    /// The kernel's mark on this request.
    pub fn id(&self) -> RequestId {
        RequestId(self.header.unique)
    }

    /// The inode that the operation names.
    pub fn node(&self) -> NodeId {
        NodeId(self.header.nodeid)
    }

    /// File-system user id of the caller.
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// File-system group id of the caller.
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// Process id of the caller, 0 where it has none in the server's pid namespace.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// The supplementary group under which an inode is to be made, where CREATE_SUPP_GROUP was negotiated and the
    /// parent's group is among the caller's.
    pub fn supplementary_groups(&self) -> impl Iterator<Item = u32> + '_ {
        self.extensions.supplementary_groups()
    }

    /// Security contexts (attribute name, value) for an inode about to be made, where SECURITY_CTX was negotiated.
    pub fn security_contexts(&self) -> impl Iterator<Item = (&std::ffi::CStr, &[u8])> + '_ {
        self.extensions.security_contexts().map(|context| (context.name, context.value))
    }

    /// The kernel asks again after a takeover: the operation may have been done already.
    pub fn is_resend(&self) -> bool {
        self.header.is_resend()
    }

    /// Says that something is about to be done that must not be done twice. To be called last before the system call that
    /// does it. `before` tells what a later server needs to see whether it was done; it is called only where there may
    /// be one, and where this request was not [begun](Self::begun) already.
    ///
    /// # Errors
    /// Those of `before`.
    pub fn begin(&self, before: impl FnOnce() -> Result<Before, Errno>) -> Result<(), Errno> {
        self.intent.begin(before)
    }

    /// What an earlier server, of whose reply the kernel knows nothing, had begun of this request. `None`: nothing that
    /// must not be done twice.
    pub fn begun(&self) -> Option<&Begun> {
        self.intent.begun()
    }

    /// The session: kernel caches, passthrough, what was negotiated.
    pub fn session(&self) -> &Handle {
        self.session
    }

    /// Completes once the caller gave up (a signal).
    ///
    /// Operations that change nothing are cancelled by themselves: the handler's future is dropped and the caller gets
    /// EINTR. Handlers that change something, and wait, use this to stop at a point of their choice.
    pub fn interrupted(&self) -> impl Future<Output = ()> + Send + 'static {
        self.interrupt.clone().wait()
    }

    /// Whether the caller gave up.
    pub fn is_interrupted(&self) -> bool {
        // Until the handler first waits, the interrupt is kept beside it.
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
