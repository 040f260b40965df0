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
mod volume;

pub use gateway::GatewaySource;
pub use host::HostSource;
pub use http::Source;
pub use listener::Listener;

use crate::report::Stat;

/// The mounts, or the gateway, whose metrics a scrape reports.
#[derive(Debug, Default)]
pub struct Scrape {
    /// The mounts, each once.
    pub mounts: Vec<MountScrape>,
    /// The gateway.
    pub gateway: Option<gateway::GatewayScrape>,
}

/// A mount in a scrape.
#[derive(Debug, Default)]
pub struct MountScrape {
    /// The mount point.
    pub mountpoint: String,
    /// Its daemon's report; none if the daemon does not answer.
    pub stat: Option<Stat>,
}

impl Scrape {
    /// The scrape of one mount.
    pub fn of_mount(stat: Stat) -> Self {
        let mountpoint = stat.mountpoint.clone();
        Scrape { mounts: vec![MountScrape { mountpoint, stat: Some(stat) }], gateway: None }
    }
}
