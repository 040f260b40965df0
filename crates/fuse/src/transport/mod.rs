//! How requests come in and replies go out. File systems never see which transport serves them.

pub(crate) mod buffer;
pub(crate) mod channel;
pub(crate) mod dev;
pub(crate) mod device;
pub(crate) mod message;
pub(crate) mod payload;
pub(crate) mod pipe;
pub(crate) mod uring;
pub(crate) mod virtio;

pub(crate) use channel::{Afterwards, Channel};
