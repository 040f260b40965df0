//! Metrics for Prometheus: `--metrics` of a daemon or gateway, and `shunt metrics`, the exporter of all mounts of this machine.
//!
//! A scrape reads what `shunt stat` reads: in a daemon from its own counters, in the exporter through the control sockets. Nothing is
//! collected between scrapes. The threads that answer scrapes read relaxed counters, which the threads that serve the mount write.

mod catalog;
mod gateway;
mod host;
mod http;
mod io;
mod listener;
mod render;
mod sample;
mod scrape;
mod volume;

pub use gateway::GatewaySource;
pub use host::HostSource;
pub use listener::Listener;
pub use scrape::{Scrape, Source};
