//! The identity of an open inode: the node by which the client knows it, or would know it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::node::Node;

/// The result of identifying an open inode.
pub(super) enum Identity {
    /// A complete node.
    Handle(Node),
    /// A node that still needs an O_PATH descriptor.
    Descriptor(Box<dyn FnOnce(Arc<OwnedFd>) -> Node>),
}
