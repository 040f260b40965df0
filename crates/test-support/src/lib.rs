//! Support for the tests of all crates: programs with a deadline, servers, loop devices, locks on what the machine has once, time
//! limits, and skipped tests. It depends on no other crate of the workspace, so that each of them can test with it.

pub mod certificates;
pub mod cmd;
pub mod loops;
pub mod memory;
pub mod pace;
pub mod peer;
pub mod port;
pub mod rings;
pub mod servers;
pub mod skip;
pub mod tools;
pub mod turn;
pub mod user;

pub use cmd::{Ran, copy_program, patiently, run, run_for, sh};
pub use loops::Loop;
pub use peer::Peer;
pub use user::User;
