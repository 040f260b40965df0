//! `shunt list`: combines the mount table with the replies of the daemons.

use std::io::{self, Write};

use shunt_fuse::mount::MountInfo;

use super::print;
use crate::cli::ListArgs;
use crate::control::{self, Hello, QueryResult};
use crate::error::{Result, failed};
use crate::own_mounts;
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

/// The mounts of this namespace, oldest first.
pub(super) fn entries() -> Result<Vec<Entry>> {
    let mounts = own_mounts::all()?;
    let targets: Vec<_> = mounts.iter().map(own_mounts::query_target).collect();
    let answers = control::query_all(&targets);
    Ok(mounts.iter().zip(answers).map(|(info, answer)| entry(info, answer)).collect())
}

fn entry(info: &MountInfo, answer: QueryResult<Hello>) -> Entry {
    let entry = from_table(info, own_mounts::kind(info).unwrap_or_default());
    match answer {
        QueryResult::NoDaemon => entry,
        // Mount point (a mount can be moved), source and kind come from the kernel's table, which is authoritative.
        QueryResult::Answer(hello) => {
            let source = own_mounts::source(info, &hello.entry.source);
            Entry { mountpoint: entry.mountpoint, source, kind: entry.kind, ..hello.entry }
        }
        QueryResult::Silent(pid, error) => {
            let line = format!("the daemon of {} does not answer: {error}", entry.mountpoint);
            let _ = writeln!(io::stderr(), "shunt: {}", printable(&line));
            Entry { pid: pid.map(|pid| pid.as_raw_nonzero().get() as u32), ..entry }
        }
    }
}

/// The entry of a mount according to the mount table alone.
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
    fn unknown_values_are_shown_as_dash() {
        let dead =
            Entry { mountpoint: "/m".into(), source: "/s".into(), kind: "mirror".into(), ..Entry::default() };
        let text = table(&[dead]);
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["/m", "/s", "mirror", "-", "-", "-"]);
    }
}
