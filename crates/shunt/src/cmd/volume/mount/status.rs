//! `shunt volume status`: prints the state of a mounted volume or tree.

use std::path::Path;
use std::time::Duration;

use super::cache_status;
use crate::args::VolumeStatusArgs;
use crate::cmd::print;
use crate::cmd::volume::admin::quota;
use crate::cmd::volume::api::TreeState;
use crate::cmd::volume::mounted_path::asked;
use crate::control::VolumeAsk;
use crate::error::{Code, Failure, Result, failed};
use crate::own_mounts;
use crate::report::VolumeReport;
use crate::text::{Align, Table, printable};

/// Timeout of requests to the daemon of a tree.
const TREE_TIME: Duration = Duration::from_secs(20);

pub fn run(args: &VolumeStatusArgs) -> Result<()> {
    if own_mounts::find(&args.mountpoint).is_ok_and(|(_, info)| own_mounts::kind(&info) == Some("tree")) {
        return tree(args);
    }
    let report = ask(&args.mountpoint)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&report).map_err(failed)?));
    }
    print(table(&report))
}

fn tree(args: &VolumeStatusArgs) -> Result<()> {
    let tree: TreeState = asked(&args.mountpoint, |peer| peer.ask_volume(&VolumeAsk::Tree, TREE_TIME))?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&tree).map_err(failed)?));
    }
    let error = tree.error.map_or(String::new(), |error| format!("wrong    {}\n", printable(&error)));
    let mut text = format!("tree     {} as {}\n{}", tree.config, tree.node, error);
    let mut table = Table::new(&[("PLACE", Align::Left), ("VOLUME", Align::Left), ("STATE", Align::Left)]);
    for volume in tree.volumes {
        let why = volume.error.map_or(String::new(), |error| format!(": {error}"));
        table.row([volume.place, volume.name, format!("{}{why}", volume.state)]);
    }
    text.push_str(&table.render());
    print(text)
}

fn table(report: &VolumeReport) -> String {
    let reason = report.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    let held =
        if report.held > 0 { format!(", {} of them cannot go now", report.held) } else { String::new() };
    let read_only = if report.read_only { ", read-only" } else { "" };
    let others = match (report.connected, report.others) {
        (false, _) => String::new(),
        (true, 0) => "others   none is connected\n".to_owned(),
        (true, others) => format!("others   {others} connected: each sees what was closed\n"),
    };
    format!(
        "volume   {} as {}\ncache    {}\nstate    {}{read_only}{reason}\n{others}pending  {} changes of this node{held}\n\
         since    the mount: {} sent, {} received\n{}{}",
        report.name,
        report.node,
        report.cache,
        report.state,
        report.pending,
        report.sent,
        report.received,
        quota::table(&report.quota),
        cache_status::lines(&report.space),
    )
}

/// Has the daemon connect to the store, or disconnect from it.
pub fn set_online(mountpoint: &Path, online: bool) -> Result<()> {
    asked(mountpoint, |peer| peer.set_online(online))
}

fn ask(mountpoint: &Path) -> Result<VolumeReport> {
    let stat = asked(mountpoint, |peer| peer.stat())?;
    let path = mountpoint.display();
    stat.volume.ok_or_else(|| Failure::new(Code::NotShunt, format_args!("{path} is not a volume")))
}
