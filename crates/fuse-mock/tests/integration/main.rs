//! Tests of sessions connected to a mock kernel.

mod common;
mod handlers;
mod malformed;
mod memfs;
mod misbehaving_handlers;
mod negotiation;
mod notifications;
mod operations;
mod undelivered_replies;
