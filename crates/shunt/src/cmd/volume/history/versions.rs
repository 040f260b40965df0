//! `shunt volume history`: lists the kept versions of a path.

use std::time::Duration;

use super::log::local;
use crate::args::HistoryArgs;
use crate::cmd::print;
use crate::cmd::volume::api::Version;
use crate::cmd::volume::mounted_path::MountedPath;
use crate::control::VolumeAsk;
use crate::error::{Result, failed};

/// Timeout: the versions come from a store that may be far away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(args: &HistoryArgs) -> Result<()> {
    let found = versions(&MountedPath::of(&args.path)?)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&found).map_err(failed)?));
    }
    print(found.iter().map(format_version).collect::<String>())
}

/// The versions of a path, the latest first.
pub fn versions(mounted: &MountedPath) -> Result<Vec<Version>> {
    mounted.request(&VolumeAsk::History { path: mounted.inside.clone() }, REQUEST_TIMEOUT)
}

fn format_version(version: &Version) -> String {
    let at = version.at.as_deref().map_or_else(|| "(unknown time)".to_owned(), local);
    let node = version.node.as_deref().unwrap_or("-");
    let size = if version.what == "file" { format!("  {} bytes", version.size) } else { String::new() };
    let mode = version.mode.as_ref().map_or(String::new(), |mode| format!("  mode {mode}"));
    let now = if version.current { "  (now)" } else { "" };
    format!("@#{:<6}  {at:<23}  {node:<10}  {}{size}{mode}{now}\n", version.seq, version.what)
}
