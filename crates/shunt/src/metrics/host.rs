//! The exporter's source: all mounts of this machine, through their control sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::control::{self, QueryResult};
use crate::own_mounts;
use crate::report::Stat;

use super::scrape::{MountScrape, Scrape, Source};

/// Age up to which a scrape is answered with the result of the previous one, so that many clients cannot keep the daemons busy.
const MAX_AGE: Duration = Duration::from_millis(200);

/// Asks the daemons of all mounts. One scrape runs at a time.
#[derive(Debug, Default)]
pub struct HostSource {
    last: Mutex<Option<(Instant, Arc<Scrape>)>>,
}

impl Source for HostSource {
    fn scrape(&self) -> Arc<Scrape> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, scrape)) if at.elapsed() < MAX_AGE => scrape.clone(),
            _ => {
                let scrape = Arc::new(scrape());
                *last = Some((Instant::now(), scrape.clone()));
                scrape
            }
        }
    }
}

fn scrape() -> Scrape {
    let mounts = own_mounts::all().unwrap_or_else(|error| {
        tracing::warn!("cannot read the mount table: {error}");
        Vec::new()
    });
    let targets: Vec<_> = mounts.iter().map(own_mounts::query_target).collect();
    let answers = control::query_all_stats(&targets);
    // Two samples with equal labels would make the whole scrape invalid. Of mounts over each other, the last one is visible.
    let mut by_path = BTreeMap::new();
    for (info, answer) in mounts.iter().zip(answers) {
        let mountpoint = info.mountpoint.to_string_lossy().into_owned();
        let stat = match answer {
            // Mount point (a mount can be moved) and source come from the kernel's table.
            QueryResult::Answer(stat) => {
                Some(Stat { source: own_mounts::source(info, &stat.source), ..*stat })
            }
            QueryResult::NoDaemon => None,
            QueryResult::Silent(_, error) => {
                tracing::debug!("the daemon of {mountpoint} does not answer: {error}");
                None
            }
        };
        by_path.insert(mountpoint.clone(), MountScrape { mountpoint, stat });
    }
    Scrape { mounts: by_path.into_values().collect(), gateway: None }
}
