//! `shunt volume status`.

use std::path::Path;

use crate::args::VolumeStatusArgs;
use crate::cmd::print;
use crate::control::{self, SocketDir, SocketName};
use crate::error::{Code, Failure, Result, failed};
use crate::ours;
use crate::report::VolumeReport;

pub fn run(args: &VolumeStatusArgs) -> Result<()> {
    let report = ask(&args.mountpoint)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&report).map_err(failed)?));
    }
    print(table(&report))
}

fn table(report: &VolumeReport) -> String {
    let reason = report.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    format!(
        "volume   {} as {}\ncache    {}\nstate    {}{reason}\npending  {} changes of this node\n",
        report.name, report.node, report.cache, report.state, report.pending,
    )
}

fn ask(mountpoint: &Path) -> Result<VolumeReport> {
    let path = mountpoint.display();
    let (mount, info) = ours::find(mountpoint)?;
    let dirs = ours::owner(&info).map(SocketDir::of).unwrap_or_default();
    let name = SocketName::of(&mount);
    let stat = control::ask(&dirs, &name, || !mount.is_mounted(), |peer| peer.stat())
        .map_err(|error| failed(format_args!("the daemon of {path} does not answer: {error}")))?
        .ok_or_else(|| failed(format_args!("no daemon of this user serves {path}")))?;
    stat.volume.ok_or_else(|| Failure::new(Code::NotShunt, format_args!("{path} is not a volume")))
}
