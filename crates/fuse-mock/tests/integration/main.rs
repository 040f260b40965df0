//! Tests of sessions connected to a mock kernel.

mod common;
mod handlers;
mod malformed;
mod memfs;
mod negotiation;
mod notifications;
mod odd_handlers;
mod operations;
mod undelivered;
