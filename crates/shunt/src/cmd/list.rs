//! `shunt list`.

use std::collections::HashMap;
use std::io::{self, Write};

use shunt_fuse::mount::{MountInfo, fuse_mounts};

use super::print;
use crate::cli::ListArgs;
use crate::control::{self, SocketDir};
use crate::error::{Result, failed};
use crate::ours;
use crate::report::Entry;
use crate::text::{Align, Table, printable};

pub fn run(args: &ListArgs) -> Result<()> {
    let entries = entries()?;
    if args.json {
        let json = serde_json::to_string_pretty(&entries).map_err(failed)?;
        return print(format!("{json}\n"));
    }
    if entries.is_empty() {
        return print("no mounts\n");
    }
    print(table(&entries))
}

/// The mounts of this namespace, in the order in which they were made.
fn entries() -> Result<Vec<Entry>> {
    let dirs = SocketDir::all();
    // A daemon whose mount was taken out of the tree still serves its last users, but there is no mount to list.
    let mut daemons: HashMap<String, _> =
        control::survey(&dirs).into_iter().map(|(name, peer)| (name.device().to_owned(), peer)).collect();
    let mut entries = Vec::new();
    for info in fuse_mounts()? {
        let Some(kind) = ours::kind(&info) else { continue };
        let mut entry = from_table(&info, kind);
        if let Some(peer) = daemons.remove(&info.dev.to_string()) {
            entry.pid = peer.pid.map(|pid| pid.as_raw_nonzero().get() as u32);
            match peer.hello() {
                // A mount can be moved: the table knows where it is now.
                Ok(hello) => entry = Entry { mountpoint: entry.mountpoint, ..hello.entry },
                Err(error) => {
                    let line = format!("the daemon of {} does not answer: {error}", entry.mountpoint);
                    let _ = writeln!(io::stderr(), "shunt: {}", printable(&line));
                }
            }
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// What the mount table alone tells.
fn from_table(info: &MountInfo, kind: &str) -> Entry {
    Entry {
        mountpoint: info.mountpoint.to_string_lossy().into_owned(),
        source: info.source.to_string_lossy().into_owned(),
        kind: kind.to_owned(),
        ..Entry::default()
    }
}

fn table(entries: &[Entry]) -> String {
    let mut table = Table::new(&[
        ("MOUNTPOINT", Align::Left),
        ("SOURCE", Align::Left),
        ("KIND", Align::Left),
        ("PID", Align::Right),
        ("TRANSPORT", Align::Left),
        ("PASSTHROUGH", Align::Left),
    ]);
    for entry in entries {
        let unknown = || "-".to_owned();
        table.row([
            entry.mountpoint.clone(),
            entry.source.clone(),
            entry.kind.clone(),
            entry.pid.map_or_else(unknown, |pid| pid.to_string()),
            entry.transport.clone().unwrap_or_else(unknown),
            entry.passthrough.map_or_else(unknown, |on| (if on { "on" } else { "off" }).to_owned()),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_a_dash() {
        let dead =
            Entry { mountpoint: "/m".into(), source: "/s".into(), kind: "mirror".into(), ..Entry::default() };
        let text = table(&[dead]);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["/m", "/s", "mirror", "-", "-", "-"]);
    }
}
