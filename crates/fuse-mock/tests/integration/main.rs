//! Sessions served to a kernel in a box.

mod common;
mod handlers;
mod malformed;
mod memfs;
mod negotiation;
mod notifications;
mod odd_handlers;
mod operations;
mod undelivered;
