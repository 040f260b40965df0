//! `shunt volume status`: prints the state of a mounted volume or tree.

use std::path::Path;
use std::time::Duration;

use super::cache_status;
use crate::args::VolumeStatusArgs;
use crate::cmd::print;
use crate::cmd::volume::admin::quota;
use crate::cmd::volume::api::TreeState;
use crate::cmd::volume::mounted_path::request_any;
use crate::control::VolumeAsk;
use crate::error::{Code, Failure, Result, failed};
use crate::own_mounts;
use crate::report::VolumeReport;
use crate::text::{Align, Table, printable};

/// Timeout of requests to the daemon of a tree.
const TREE_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

pub fn run(args: &VolumeStatusArgs) -> Result<()> {
    if own_mounts::find(&args.mountpoint).is_ok_and(|(_, info)| own_mounts::kind(&info) == Some("tree")) {
        return tree(args);
    }
    let report = request_report(&args.mountpoint)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&report).map_err(failed)?));
    }
    print(table(&report))
}

fn tree(args: &VolumeStatusArgs) -> Result<()> {
    let tree: TreeState =
        request_any(&args.mountpoint, |peer| peer.request_volume(&VolumeAsk::Tree, TREE_REQUEST_TIMEOUT))?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&tree).map_err(failed)?));
    }
    print(tree_table(tree))
}

fn tree_table(tree: TreeState) -> String {
    let mut lines = vec![("tree", format!("{} as {}", tree.config, tree.node))];
    lines.extend(tree.error.map(|error| ("error", error)));
    let mut table = Table::new(&[("PLACE", Align::Left), ("VOLUME", Align::Left), ("STATE", Align::Left)]);
    for volume in tree.volumes {
        let why = volume.error.map_or(String::new(), |error| format!(": {error}"));
        table.row([volume.place, volume.name, format!("{}{why}", volume.status)]);
    }
    labelled(&lines) + &table.render()
}

fn table(report: &VolumeReport) -> String {
    let read_only = if report.read_only { ", read-only" } else { "" };
    let reason = report.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    let blocked = if report.blocked > 0 { format!(" ({} blocked)", report.blocked) } else { String::new() };
    let mut lines = vec![
        ("volume", format!("{} as {}", report.name, report.node)),
        ("cache", report.cache.clone()),
        ("state", format!("{}{read_only}{reason}", report.state)),
    ];
    if report.connected {
        let peers = if report.peers == 0 { "none".to_owned() } else { report.peers.to_string() };
        lines.push(("peers", format!("{peers} connected")));
    }
    lines.push(("pending", format!("{} local changes{blocked}", report.pending)));
    lines.push(("synced", format!("{} sent, {} received since mount", report.sent, report.received)));
    lines.extend(quota::usage(&report.quota));
    lines.extend(cache_status::lines(&report.space));
    labelled(&lines)
}

/// Lines of a label and a text. A line without a label continues the one above.
fn labelled(lines: &[(&str, String)]) -> String {
    lines.iter().map(|(label, text)| format!("{label:<16}{}\n", printable(text))).collect()
}

/// Has the daemon connect to the store, or disconnect from it.
pub fn set_online(mountpoint: &Path, online: bool) -> Result<()> {
    request_any(mountpoint, |peer| peer.set_online(online))
}

fn request_report(mountpoint: &Path) -> Result<VolumeReport> {
    let stat = request_any(mountpoint, |peer| peer.stat())?;
    let path = mountpoint.display();
    stat.volume.ok_or_else(|| Failure::new(Code::NotShunt, format_args!("{path} is not a volume")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::volume::api::TreeVolume;
    use crate::report::{QuotaReport, SpaceReport, UsageReport};

    fn report() -> VolumeReport {
        let usage = UsageReport { bytes: 1_468_006, objects: 37, ..UsageReport::default() };
        VolumeReport {
            name: "notes".into(),
            node: "laptop".into(),
            cache: "/cache".into(),
            state: "online".into(),
            connected: true,
            sent: 12,
            quota: QuotaReport { held: usage, ..QuotaReport::default() },
            space: SpaceReport {
                cache_mode: "cached".into(),
                cached_bytes: 1_468_006,
                ..SpaceReport::default()
            },
            ..VolumeReport::default()
        }
    }

    #[test]
    fn a_quiet_volume_has_eight_lines() {
        let expected = "\
volume          notes as laptop
cache           /cache
state           online
peers           none connected
pending         0 local changes
synced          12 sent, 0 received since mount
usage           1.4 MiB in 37 objects
cached          1.4 MiB (mode: cached)
";
        assert_eq!(table(&report()), expected);
        let offline = VolumeReport { state: "offline".into(), connected: false, ..report() };
        assert!(!table(&offline).contains("peers"));
    }

    #[test]
    fn pending_changes_and_missing_files_have_a_line() {
        let mut report = report();
        (report.state, report.reason) = ("unreachable".into(), Some("timed out".into()));
        (report.read_only, report.peers, report.pending, report.blocked) = (true, 2, 5, 3);
        report.quota.held.limit_bytes = Some(20 << 30);
        report.quota.users = vec![UsageReport { user: Some(1000), ..UsageReport::default() }];
        report.space = SpaceReport {
            cache_mode: "cached".into(),
            cached_bytes: 3 << 20,
            cached_limit: Some(2 << 20),
            pinned: vec!["papers".into()],
            pinned_bytes: 1 << 20,
            unsent_bytes: 1 << 10,
            unevictable_bytes: 1 << 20,
            missing_files: 4,
            offline_misses: 6,
            offline_miss_paths: vec!["a\nb".into()],
            answer_ms: Some(12.34),
            bytes_per_second: Some(1 << 19),
            slow: true,
            objects_unreachable: true,
            ..SpaceReport::default()
        };
        let expected = "\
volume          notes as laptop
cache           /cache
state           unreachable, read-only: timed out
peers           2 connected
pending         5 local changes (3 blocked)
synced          12 sent, 0 received since mount
usage           1.4 MiB of 20.0 GiB in 37 objects
                0 B in 0 objects of user 1000
cached          3.0 MiB of 2.0 MiB (mode: cached); 1.0 MiB pinned; 1.0 KiB not in the store; \
            1.0 MiB above the limit, unevictable; 4 files to download
store latency   12.3 ms
download rate   512.0 KiB/s
slow link       contents are fetched on demand only
store           objects unreachable: contents that are not cached fail with ENETUNREACH; probed twice a second
offline misses  6
                a\\nb
pinned          papers
";
        assert_eq!(table(&report), expected);
    }

    #[test]
    fn a_tree_has_a_row_for_each_volume() {
        let volume = |name: &str, status: &str, error: Option<&str>| TreeVolume {
            name: name.into(),
            place: format!("work/{name}"),
            status: status.into(),
            error: error.map(str::to_owned),
            ..TreeVolume::default()
        };
        let tree = TreeState {
            config: "site".into(),
            node: "laptop".into(),
            error: Some("volumes/a.toml:1: unknown field".into()),
            volumes: vec![
                volume("a", "mounted", None),
                volume("b", "unmounted", Some("no route")),
                volume("c", "unmounting", None),
            ],
        };
        let expected = "\
tree            site as laptop
error           volumes/a.toml:1: unknown field
PLACE   VOLUME  STATE
work/a  a       mounted
work/b  b       unmounted: no route
work/c  c       unmounting
";
        assert_eq!(tree_table(tree), expected);
    }
}
