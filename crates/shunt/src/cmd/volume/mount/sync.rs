//! Synchronises a mounted volume with its store: starts the runner, the leases and the fetcher, and reports their state.

use std::sync::Arc;
use std::time::Duration;

use shunt_volume::id::NodeName;
use shunt_volume::lease::Leases;
use shunt_volume::replica::{Replica, StoreFetcher, SyncAdapter};
use shunt_volume::sync::{LinkState, Runner, Synchroniser};
use shunt_volume::volume::Volume;

use crate::error::{Result, failed};
use crate::report::VolumeReport;

/// How long a mount waits until its session is known to the other nodes.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The synchronisation runner, the leases, and the fetcher of contents.
pub type Started = (Arc<Runner>, Arc<Leases>, Arc<StoreFetcher>);

/// Starts the synchronisation.
pub fn start(replica: &Arc<Replica>, volume: &Volume, node: &NodeName) -> Result<Started> {
    let (meta, contents) = (volume.meta.clone(), volume.content.clone());
    let site = SyncAdapter::new(replica.clone(), meta.clone(), contents.clone());
    let synchroniser = Synchroniser::new(site, meta.clone(), node.clone(), rand::random::<u128>);
    let cannot = |error| failed(format_args!("cannot start a thread: {error}"));
    let online = !replica.is_offline_requested().unwrap_or_default();
    if !online {
        tracing::warn!(
            "the volume stays offline, as set before the mount; connect it with `shunt volume online`"
        );
    }
    let runner = Runner::start(synchroniser, meta.clone(), online).map_err(cannot)?;
    let waker = runner.waker();
    replica.set_watcher(Some(Box::new(move || waker.wake())));
    let waker = runner.waker();
    let from =
        StoreFetcher::new(meta.clone(), contents).with_reachability(move || waker.online()).with_probing();
    let from = Arc::new(from);
    replica.set_fetcher(Some(from.clone()));
    let probed = from.clone();
    std::thread::Builder::new().name("probe".into()).spawn(move || probed.probe()).map_err(cannot)?;
    let leases = Leases::start(meta, replica.clone(), &runner).map_err(cannot)?;
    match online {
        true => leases.wait_connected(SESSION_TIMEOUT),
        false => leases.set_online(false),
    }
    Ok((Arc::new(runner), Arc::new(leases), from))
}

/// Adds the state of the synchronisation to a report.
pub fn report(runner: &Runner, leases: &Leases, report: &mut VolumeReport) {
    let progress = runner.progress();
    let (state, reason) = match progress.link {
        LinkState::Online => ("online", None),
        LinkState::Offline => ("offline", None),
        LinkState::Unreachable(reason) => ("unreachable", Some(reason)),
        LinkState::Denied(reason) => {
            ("stopped", Some(format!("the store rejects this node's changes: {reason}")))
        }
        LinkState::Stopped(reason) => ("stopped", Some(reason)),
    };
    state.clone_into(&mut report.state);
    report.reason = reason;
    let standing = leases.status();
    report.connected = standing.connected;
    report.peers = standing.peers;
    report.leases = standing.own_leases as u64;
    report.blocked = progress.blocked as u64;
    report.sent = progress.sent;
    report.received = progress.received;
}
