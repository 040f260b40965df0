//! The kernel's caches under the server's control.
//!
//! The rule that the shape of this API keeps: **reply, then notify**. The kernel takes the lock of a directory to drop
//! one of its names, and holds that lock while a create, unlink or rename in it waits for its reply. A server that
//! waits for the notification before it replies waits for ever. So a notification that a handler asks for is kept until
//! the handler's request is answered, and waiting for it inside of a handler is an error (EDEADLK), not a hang.

mod completion;
mod delayed_expiry;
mod inflight_names;
mod listener;
mod notification;
mod notifier;
pub(crate) mod write_out;

pub use completion::Completion;
pub(crate) use completion::set_handling;
pub(crate) use listener::Listener;
pub use listener::Stale;
pub(crate) use notification::{Notification, What};
pub(crate) use notifier::Notifier;

use rustix::io::Errno;

/// Notifications that are queued at most; beyond, all names are expired at once instead.
pub(crate) const MAX_QUEUED: usize = 65_536;

/// An error that means "nothing to do".
pub(crate) fn settle(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
