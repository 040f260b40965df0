//! The values that one scrape reports, and where they come from.

use std::sync::Arc;

use shunt_volume::gateway::GatewaySnapshot;

use crate::report::Stat;

/// The mounts, or the gateway, whose metrics a scrape reports.
#[derive(Debug, Default)]
pub struct Scrape {
    /// The mounts, each once.
    pub mounts: Vec<MountScrape>,
    /// The gateway.
    pub gateway: Option<GatewayScrape>,
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

/// The state of a gateway.
#[derive(Debug)]
pub struct GatewayScrape {
    /// The volume that it serves.
    pub volume: String,
    /// Its counters.
    pub counts: GatewaySnapshot,
    /// Processor time of the process, in seconds.
    pub cpu_s: f64,
    /// Resident memory of the process.
    pub rss_bytes: u64,
}

/// The source of the values of a scrape.
pub trait Source: Send + Sync + 'static {
    /// Reads the present values.
    fn scrape(&self) -> Arc<Scrape>;
}

impl<F: Fn() -> Scrape + Send + Sync + 'static> Source for F {
    fn scrape(&self) -> Arc<Scrape> {
        Arc::new(self())
    }
}
