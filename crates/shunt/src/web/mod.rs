//! `shunt web`: a page for browsers on this machine, with all mounts, and of volumes their files, history, conflicts and nodes.
//!
//! The page shows what the user who runs the command could read anyway: statistics come from the control sockets, files from the
//! mounts, and everything about volumes from `shunt volume` commands, run as the same user. Without `--allow-changes` it
//! changes nothing.
//!
//! Requests pass [`guard`] first, which refuses everything but the browser that opened the printed link. Handlers block, so they run
//! in threads of their own, a few at a time ([`server`]).

mod app;
mod assets;
mod changes;
mod diff;
mod download;
mod error;
mod files;
mod guard;
mod limited_output;
mod mounts;
mod nodes;
mod own_command;
mod query;
mod router;
mod server;
mod sessions;
mod volumes;

pub use app::Settings;
pub use server::Server;
