//! Synchronises a mounted volume with its store: starts the runner, the leases and the fetcher, and reports their state.

use std::sync::Arc;
use std::time::Duration;

use shunt_volume::id::NodeName;
use shunt_volume::lease::Leases;
use shunt_volume::replica::{Replica, StoreFetcher, SyncAdapter};
use shunt_volume::sync::{LinkState, Runner, Synchroniser};
use shunt_volume::volume::Volume;
use shunt_volumefs::Succession;

use crate::error::{Result, failed};
use crate::report::VolumeReport;

/// How long a mount waits until its session is known to the other nodes.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a daemon that takes over waits for that, while users wait for it.
const SUCCESSOR_SESSION_TIMEOUT: Duration = Duration::from_millis(100);

/// The synchronisation runner, the leases, and the fetcher of contents.
pub type Started = (Arc<Runner>, Arc<Leases>, Arc<StoreFetcher>);

/// Starts the synchronisation. `succession`: the last daemon is continued, or the next one is to continue this one.
pub fn start(
    replica: &Arc<Replica>,
    volume: &Volume,
    node: &NodeName,
    succession: Option<&Succession>,
) -> Result<Started> {
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
    let is_successor = succession.is_some_and(Succession::is_inherited);
    // Nothing may replace the version of a file that is open before the open is adopted.
    let runner = Runner::start(synchroniser, meta.clone(), online && !is_successor).map_err(cannot)?;
    let waker = runner.waker();
    replica.set_watcher(Some(Box::new(move || waker.wake())));
    let waker = runner.waker();
    let from =
        StoreFetcher::new(meta.clone(), contents).with_reachability(move || waker.online()).with_probing();
    let from = Arc::new(from);
    replica.set_fetcher(Some(from.clone()));
    let probed = from.clone();
    std::thread::Builder::new().name("probe".into()).spawn(move || probed.probe()).map_err(cannot)?;
    let memory = succession.map(Succession::session_memory);
    let leases = Leases::continuing(meta, replica.clone(), &runner, memory).map_err(cannot)?;
    match online && !is_successor {
        true => leases.wait_connected(SESSION_TIMEOUT),
        false => leases.set_online(false),
    }
    Ok((Arc::new(runner), Arc::new(leases), from))
}

/// Connects a successor as the last daemon was, and waits for a moment until the other nodes know of it.
pub fn connect(replica: &Replica, runner: &Runner, leases: &Leases) {
    if !replica.is_offline_requested().unwrap_or_default() {
        runner.set_online(true);
        leases.set_online(true);
        leases.wait_connected(SUCCESSOR_SESSION_TIMEOUT);
    }
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
