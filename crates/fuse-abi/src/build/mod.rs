//! Builders: directory listings and notifications for servers, requests for mock kernels and tests.

pub mod dir;
pub mod ext;
pub mod notify;
pub mod request;
