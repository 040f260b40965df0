//! Control over the kernel's caches: notifications that invalidate, expire, fill and read them.
//!
//! The API enforces one rule: **reply, then notify**. To drop a name, the kernel takes the lock of its directory, and it holds
//! that lock while a create, unlink or rename in the directory waits for its reply. A server that waits for the notification
//! before it replies deadlocks. The framework therefore defers a notification that a handler requests until the handler's request
//! is answered, and a wait for it within a handler fails with EDEADLK instead of hanging.

mod completion;
mod delayed_expiry;
mod inflight_names;
mod listener;
mod notification;
mod notifier;
pub(crate) mod write_out;

pub use completion::Completion;
pub(crate) use completion::set_handling;
pub use listener::Invalidated;
pub(crate) use listener::Listener;
pub(crate) use notification::{Notification, NotificationKind};
pub(crate) use notifier::Notifier;

use rustix::io::Errno;

/// Notifications that are queued at most; beyond, all names are expired at once instead.
pub(crate) const MAX_QUEUED_NOTIFICATIONS: usize = 65_536;

/// Maps ENOENT to success: the kernel had nothing cached.
pub(crate) fn ignore_not_cached(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
