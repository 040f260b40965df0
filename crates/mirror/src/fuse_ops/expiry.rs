//! Cache lifetimes of replies: how long the kernel may cache names and attributes. [`coherence`](crate::coherence)
//! states the rules.

use rustix::fs::Statx;
use shunt_fuse::{Attributes, Expiry, FileType, NodeId};

use super::convert;
use crate::coherence::{UNWATCHED_TTL, WATCHED_ATTR_TTL};
use crate::lower::Component;
use crate::lower::watch::Moment;
use crate::options::{NO_EVENTS_TTL, is_setid};
use crate::{CacheMode, Mirror};

/// A request about a name, with the moment at which it arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameRequest<'a> {
    pub(super) parent: NodeId,
    pub(super) name: Component<'a>,
    /// The moment at which the request arrived; `None` without a watch.
    pub(super) since: Option<Moment>,
}

impl Mirror {
    /// Records the moment of a request before it is handled.
    pub(super) fn name_request<'a>(&self, parent: NodeId, name: Component<'a>) -> NameRequest<'a> {
        NameRequest { parent, name, since: self.looking_into(parent) }
    }

    /// Records the moment before names of a directory are read, and watches the directory.
    pub(super) fn looking_into(&self, dir: NodeId) -> Option<Moment> {
        self.lower.watch_dir(dir);
        self.lower.moment()
    }

    /// Returns how long the kernel may cache a name.
    pub(super) fn name_expiry(&self, name_request: &NameRequest<'_>) -> Expiry {
        match self.cache {
            CacheMode::Coherent | CacheMode::Exclusive if self.lower.ignores_case(name_request.parent) => {
                // An event for another spelling of the name does not name this one.
                return Expiry::NEVER_CACHED;
            }
            CacheMode::Coherent => {}
            mode => return mode.time(),
        }
        if !self.lower.is_watched(name_request.parent, name_request.since) || !self.coherence.expires_all() {
            return Expiry::after(NO_EVENTS_TTL);
        }
        let quiet = self.lower.is_name_quiet(name_request.name.as_cstr().to_bytes(), name_request.since);
        if quiet { Expiry::FOREVER } else { UNWATCHED_TTL }
    }

    /// Converts attributes and decides their expiry. `since` is the moment before they were read.
    pub(super) fn expiring(&self, node: NodeId, stat: &Statx, since: Option<Moment>) -> (Attributes, Expiry) {
        let attributes = convert::attributes(stat);
        let expiry = match self.cache {
            _ if is_setid(&attributes) => Expiry::NEVER_CACHED,
            CacheMode::Coherent => self.attributes_expiry(node, &attributes, since),
            mode => self.writable_mappings.limit(node, mode.time()),
        };
        (attributes, expiry)
    }

    /// Returns how long the kernel may cache attributes that were read since the given moment.
    fn attributes_expiry(&self, node: NodeId, attributes: &Attributes, since: Option<Moment>) -> Expiry {
        if !matches!(attributes.file_type(), FileType::Directory | FileType::Symlink) {
            return UNWATCHED_TTL;
        }
        if !self.lower.is_watched(node, since) {
            return if self.lower.reports_inode_changes() {
                Expiry::after(NO_EVENTS_TTL)
            } else {
                UNWATCHED_TTL
            };
        }
        if self.lower.is_quiet(node, since) { WATCHED_ATTR_TTL } else { UNWATCHED_TTL }
    }
}
