//! Carries changes between a mounted volume and its store.

use std::sync::Arc;

use shunt_volume::id::NodeName;
use shunt_volume::replica::{FromStore, Replica, ReplicaSite};
use shunt_volume::store::address::Volume;
use shunt_volume::sync::{Runner, Synchroniser, Touch};

use crate::error::{Result, failed};
use crate::report::VolumeReport;

/// Begins to synchronise.
pub fn start(replica: &Arc<Replica>, volume: &Volume, node: &NodeName) -> Result<Runner> {
    let (meta, contents) = (volume.meta.clone(), volume.content.clone());
    let from = FromStore { meta: meta.clone(), contents: contents.clone() };
    replica.set_fetcher(Some(Arc::new(from)));
    let site = ReplicaSite::new(replica.clone(), meta.clone(), contents);
    let synchroniser = Synchroniser::new(site, meta.clone(), node.clone(), rand::random::<u128>);
    let runner = Runner::start(synchroniser, meta, true)
        .map_err(|error| failed(format_args!("cannot start a thread: {error}")))?;
    let waker = runner.waker();
    replica.set_watcher(Some(Box::new(move || waker.wake())));
    Ok(runner)
}

/// Says how it goes.
pub fn report(runner: &Runner, report: &mut VolumeReport) {
    let progress = runner.progress();
    let (state, reason) = match progress.touch {
        Touch::Online => ("online", None),
        Touch::Offline => ("offline", None),
        Touch::Unreachable(reason) => ("unreachable", Some(reason)),
        Touch::Stopped(reason) => ("stopped", Some(reason)),
    };
    state.clone_into(&mut report.state);
    report.reason = reason;
    report.held = progress.held as u64;
    report.sent = progress.sent;
    report.received = progress.received;
}
