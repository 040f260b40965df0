//! `shunt volume log`: prints the commits of a volume.

use std::time::Duration;

use shunt_volume::history::timestamp;

use crate::args::VolumeLogArgs;
use crate::cmd::print;
use crate::cmd::volume::api::Commit;
use crate::cmd::volume::mounted_path::MountedPath;
use crate::control::VolumeAsk;
use crate::error::{Result, failed};
use crate::text::printable;

/// Timeout: a long log comes from a store that may be far away.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

pub fn run(args: &VolumeLogArgs) -> Result<()> {
    let mounted = MountedPath::of(&args.path)?;
    let path = (!mounted.inside.is_empty()).then(|| mounted.inside.clone());
    let found: Vec<Commit> = mounted.request(&VolumeAsk::Log { path, limit: args.limit }, REQUEST_TIMEOUT)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&found).map_err(failed)?));
    }
    print(found.iter().map(format_commit).collect::<String>())
}

fn format_commit(commit: &Commit) -> String {
    let mut text = String::new();
    for change in &commit.changes {
        let path = match change.path.as_deref() {
            Some("") => ".",
            Some(path) => path,
            None => "(no longer exists)",
        };
        let detail =
            change.detail.as_ref().map_or(String::new(), |detail| format!("  ({})", printable(detail)));
        text += &format!(
            "{:>6}  {}  {:<10}  {:<7}  {}{detail}\n",
            commit.seq,
            local(&commit.at),
            commit.node,
            change.what,
            printable(path),
        );
    }
    text
}

/// Converts a time of a reply to the local time zone.
pub fn local(text: &str) -> String {
    timestamp::parse(text).map_or_else(|| text.to_owned(), timestamp::local)
}
