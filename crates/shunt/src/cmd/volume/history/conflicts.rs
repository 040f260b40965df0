//! `shunt volume conflicts` and `shunt volume resolve`: list conflicts and choose a version.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::args::{ConflictsArgs, ResolveArgs};
use crate::cmd::print;
use crate::cmd::volume::api::{Conflict, Resolved, Side};
use crate::cmd::volume::mounted_path::MountedPath;
use crate::control::VolumeAsk;
use crate::error::{Result, failed, usage};
use crate::text::printable;

/// Timeout of requests that the daemon answers from its own database.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

pub fn list(args: &ConflictsArgs) -> Result<()> {
    let mounted = MountedPath::of(&args.path)?;
    let found: Vec<Conflict> =
        mounted.request(&VolumeAsk::Conflicts { under: mounted.inside.clone() }, REQUEST_TIMEOUT)?;
    if args.json {
        return print(format!("{}\n", serde_json::to_string_pretty(&found).map_err(failed)?));
    }
    print(found.iter().map(format_conflict).collect::<String>())
}

fn format_conflict(conflict: &Conflict) -> String {
    let Conflict { path, kind, since, sides } = conflict;
    let width = sides.iter().map(|side| side.node.chars().count()).max().unwrap_or(0);
    let mut text = format!("{}  {kind}, since {}\n", printable(path), super::log::local(since));
    for side in sides {
        text += &format!("    {:<width$}  {}\n", printable(&side.node), version(side));
    }
    text
}

fn version(side: &Side) -> String {
    let here = if side.here { "  (this machine)" } else { "" };
    let (Some(modified), Some(owner)) = (&side.modified, side.owner) else {
        return format!("{}{here}", side.what);
    };
    let size = if side.what == "file" { format!(", {} bytes", side.size) } else { String::new() };
    format!("{}{size}, written {}, of user {owner}{here}", side.what, super::log::local(modified))
}

pub fn resolve(args: &ResolveArgs) -> Result<()> {
    let mut wrong = 0;
    let paths = match &args.paths[..] {
        [] if args.all => vec![Path::new(".").to_owned()],
        [] => return Err(usage("no conflict given; name paths, or use --all")),
        paths => paths.to_vec(),
    };
    for path in &paths {
        let mounted = MountedPath::of(path)?;
        let (keep, path) = (args.keep.clone(), mounted.inside.clone());
        let done: Vec<Resolved> =
            mounted.request(&VolumeAsk::Resolve { keep, path, below: args.all }, REQUEST_TIMEOUT)?;
        for one in done {
            let path = printable(&one.path).into_owned();
            match one.error {
                None => print(format!("kept {}: {path}\n", args.keep))?,
                Some(error) => {
                    // Counted even if the message cannot be printed.
                    let _ = writeln!(std::io::stderr(), "shunt: {path}: {error}");
                    wrong += 1;
                }
            }
        }
    }
    if wrong > 0 { Err(failed(format_args!("{wrong} conflicts are not resolved"))) } else { Ok(()) }
}
