//! Builders: directory listings and notifications for servers, requests for whoever plays the kernel.

pub mod dir;
pub mod ext;
pub mod notify;
pub mod request;
