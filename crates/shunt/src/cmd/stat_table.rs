//! Formats statistics for people.

use std::fmt::Write as _;

use crate::report::{Extension, OpcodeCounts, Stat};
use crate::text::{Align, Table, bytes, micros, printable, uptime};

/// Frequent operations, which are listed when none of them reached the daemon.
const COMMON: &[&str] = &[
    "lookup",
    "getattr",
    "open",
    "read",
    "write",
    "flush",
    "release",
    "getxattr",
    "opendir",
    "readdir",
    "readdirplus",
];

/// The whole page; with an earlier one, also the requests per second since.
pub fn render(stat: &Stat, before: Option<&Stat>) -> String {
    let mut out = head(stat);
    out.push('\n');
    out.push_str(&requests(stat, before));
    if !stat.negotiated.refused.is_empty() {
        out.push_str("\nrefused capabilities:\n");
        for refused in &stat.negotiated.refused {
            let _ = writeln!(out, "  {}: {}", printable(&refused.capability), printable(&refused.reason));
        }
    }
    out
}

fn head(stat: &Stat) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let (memory, passthrough, negotiated) = (&stat.memory, &stat.passthrough, &stat.negotiated);
    lines.push(("mount", format!("{} shows {} ({})", stat.mountpoint, stat.source, stat.kind)));
    lines.push((
        "daemon",
        format!(
            "pid {}, shunt {}, {} threads, up {}, processors kept awake {} times",
            stat.pid,
            stat.version,
            stat.threads,
            uptime(stat.uptime_s),
            stat.wakeful_bursts
        ),
    ));
    lines.push((
        "transport",
        format!(
            "{}{}, FUSE {}, writes up to {}",
            stat.transport,
            match (&stat.transport_reason, &stat.transport_buffers) {
                (Some(reason), _) => format!(" ({reason})"),
                (None, Some(buffers)) => format!(" with {buffers} buffers"),
                (None, None) => String::new(),
            },
            negotiated.protocol,
            bytes(negotiated.max_write.into())
        ),
    ));
    let mut text = match (&passthrough.enabled, &passthrough.reason) {
        (true, _) => "on".to_owned(),
        (false, Some(reason)) => format!("off: {reason}"),
        (false, None) => "off".to_owned(),
    };
    if passthrough.enabled {
        let (opens, files) = (passthrough.opens, passthrough.backing_files);
        let _ = write!(text, ", {opens} opens passed through, {files} backing files registered");
    }
    lines.push(("passthrough", text));
    let mut text = stat.cache.mode.clone();
    if stat.cache.overflows > 0 {
        let _ = write!(text, ", all names expired {} times", stat.cache.overflows);
    }
    if let Some(watch) = &stat.cache.watch {
        let _ = write!(text, ", {} events", watch.events);
        if watch.overflows > 0 {
            let _ = write!(text, ", events lost {} times", watch.overflows);
        }
    }
    lines.push(("cache", text));
    if let Some(rules) = &stat.rules {
        lines.push(("rules", rules.clone()));
    }
    if !stat.grafts.is_empty() {
        let paths: Vec<_> = stat.grafts.iter().map(|path| path.to_string_lossy()).collect();
        lines.push(("grafts", paths.join(" ")));
    }
    if let Some(extension) = &stat.extension {
        lines.push(("extension", in_kernel(extension)));
    }
    let never: Vec<&str> = COMMON.iter().copied().filter(|name| !stat.requests.contains_key(*name)).collect();
    if !never.is_empty() {
        lines.push(("no requests", never.join(" ")));
    }
    let mut text = format!("{} inodes", memory.nodes);
    if let Some(size) = memory.node_bytes {
        let _ = write!(text, " in {}", bytes(size));
    }
    let _ = write!(text, ", {} of them open", memory.open_nodes);
    let _ = write!(text, ", {} descriptors, {} resident", memory.descriptors, bytes(memory.rss_bytes));
    lines.push(("memory", text));
    lines.iter().fold(String::new(), |mut out, (name, text)| {
        let _ = writeln!(out, "{name:<11}  {}", printable(text));
        out
    })
}

/// The operations that the extension answered in the kernel, the most frequent first.
fn in_kernel(extension: &Extension) -> String {
    if let Some(reason) = &extension.reason {
        return format!("none: {reason}");
    }
    let mut text = format!("opens {} files", extension.files);
    let Some(counts) = &extension.counts else {
        return text + ", counts are not available (mount debugfs, run as root)";
    };
    let mut counts: Vec<_> = counts.iter().filter(|(_, answers)| answers.answered > 0).collect();
    counts.sort_by_key(|(_, answers)| std::cmp::Reverse(answers.answered));
    text.push_str(if counts.is_empty() { ", no requests answered yet" } else { ", answered" });
    for (name, OpcodeCounts { answered, passed, refused }) in counts {
        let _ = write!(text, " {name} {answered} of {}", answered + passed + refused);
    }
    text
}

fn requests(stat: &Stat, before: Option<&Stat>) -> String {
    if stat.requests.is_empty() {
        return "no requests yet\n".to_owned();
    }
    let mut columns = vec![("OPERATION", Align::Left), ("COUNT", Align::Right)];
    if before.is_some() {
        columns.push(("PER SECOND", Align::Right));
    }
    columns.extend(["ERRORS", "P50", "P99", "MAX"].map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    let mut rows: Vec<_> = stat.requests.iter().collect();
    rows.sort_by_key(|(_, requests)| std::cmp::Reverse(requests.count));
    for (name, requests) in rows {
        let mut cells = vec![name.clone(), requests.count.to_string()];
        if let Some(before) = before {
            let earlier = before.requests.get(name).map_or(0, |requests| requests.count);
            let seconds = (stat.uptime_s - before.uptime_s).max(0.001);
            cells.push(format!("{:.1}", requests.count.saturating_sub(earlier) as f64 / seconds));
        }
        cells.push(requests.errors.to_string());
        cells.extend([requests.p50_us, requests.p99_us, requests.max_us].map(micros));
        table.row(cells);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Requests;

    fn stat(count: u64, uptime_s: f64) -> Stat {
        let mut stat = Stat { uptime_s, mountpoint: "/m".into(), ..Stat::default() };
        let requests =
            Requests { count, errors: 1, p50_us: 3.0, p99_us: 1500.0, max_us: 2e6, ..Requests::default() };
        stat.requests.insert("lookup".into(), requests);
        stat.passthrough.reason = Some("no CAP_SYS_ADMIN".into());
        stat
    }

    #[test]
    fn a_page() {
        let page = render(&stat(7, 10.0), None);
        assert!(page.contains("passthrough  off: no CAP_SYS_ADMIN\n"), "{page}");
        assert!(page.contains("lookup         7       1  3.0 us  1.5 ms  2.00 s\n"), "{page}");
    }

    #[test]
    fn rates_come_from_two_pages() {
        let page = render(&stat(107, 12.0), Some(&stat(7, 10.0)));
        assert!(page.contains(" 50.0 "), "{page}");
    }
}
