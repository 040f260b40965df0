//! One mount: its daemon, its operations, and the processes that use it.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};

use super::{ALERT, HEADING, NAME};
use crate::text::{printable, uptime};
use crate::top::app::App;
use crate::top::format::{bytes, known, micros, percent, rate};
use crate::top::view::{MountView, OperationView, UpView};

/// From this width on operations and callers are side by side.
const SIDE_BY_SIDE: u16 = 78;
/// Width of the table of operations.
const OPERATIONS_WIDTH: u16 = 44;

/// Draws the mount of this page.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(mount) = app.detailed() else {
        frame.render_widget(Paragraph::new("unmounted; Esc goes back"), area);
        return;
    };
    let facts = facts(mount, area.width);
    let height = facts.len() as u16 + 1;
    let [head, tables] = Layout::vertical([Constraint::Length(height), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(facts).wrap(Wrap { trim: false }), head);
    let Some(up) = &mount.up else { return };
    let [left, right] = if area.width >= SIDE_BY_SIDE {
        Layout::horizontal([Constraint::Length(OPERATIONS_WIDTH), Constraint::Min(0)])
            .spacing(2)
            .areas(tables)
    } else {
        Layout::vertical([Constraint::Fill(2), Constraint::Fill(1)]).areas(tables)
    };
    frame.render_widget(operations(up, app.scroll), left);
    frame.render_widget(callers(up), right);
}

fn fact(name: &str, text: String) -> Line<'static> {
    Line::from(vec![Span::styled(format!("{name:<12}"), NAME), printable(&text).into_owned().into()])
}

fn facts(mount: &MountView, width: u16) -> Vec<Line<'static>> {
    let title = format!("{} shows {} ({})", mount.mountpoint, mount.source, mount.kind);
    let mut lines = vec![fact("mount", title)];
    let Some(up) = &mount.up else {
        let reason = format!("{}: {}", mount.state, mount.reason.as_deref().unwrap_or_default());
        lines.push(Line::styled(printable(&reason).into_owned(), ALERT));
        return lines;
    };
    let daemon = &up.daemon;
    lines.push(fact(
        "daemon",
        format!(
            "pid {}, {}, up {}, cpu {}, {}B, {} fds, {} threads, {} takeovers",
            daemon.pid,
            daemon.transport,
            uptime(daemon.uptime_s),
            known(daemon.cpu_percent, |percent| format!("{percent:.0}%")),
            bytes(daemon.rss_bytes as f64),
            daemon.descriptors,
            daemon.threads,
            daemon.takeovers
        ),
    ));
    lines.push(fact("requests", requests(up)));
    let passthrough = &up.passthrough;
    let state = match (&passthrough.enabled, &passthrough.reason) {
        (true, _) => format!(
            "on, {} of opens, {} backing files",
            known(passthrough.share, percent),
            passthrough.backing_files
        ),
        (false, Some(reason)) => format!("off: {reason}"),
        (false, None) => "off".to_owned(),
    };
    lines.push(fact("passthrough", state));
    let hits = up.cache.hit_share.map_or_else(String::new, |share| format!(", {} hits", percent(share)));
    let overflows = match up.cache.overflows {
        0 => String::new(),
        count => format!(", {count} overflows"),
    };
    lines.push(fact("cache", format!("{}{hits}{overflows}", up.cache.mode)));
    lines.extend(volume(up));
    lines.extend(ext4(up));
    // One line each, so that the tables have a fixed place.
    lines.iter_mut().for_each(|line| cut(line, width));
    lines
}

fn cut(line: &mut Line<'static>, width: u16) {
    if line.width() > usize::from(width)
        && let Some(last) = line.spans.last_mut()
    {
        let mut text = last.content.to_string();
        while !text.is_empty() && Span::raw(&*text).width() + 13 > usize::from(width) {
            text.pop();
        }
        last.content = format!("{text}\u{2026}").into();
    }
}

fn requests(up: &UpView) -> String {
    let Some(rates) = &up.rates else { return "no rates yet".to_owned() };
    format!(
        "{} op/s, {} failed, p50 {}, p99 {}, read {}B/s, written {}B/s, {} waiting",
        rate(rates.operations_per_s),
        rate(rates.errors_per_s),
        known(up.latency, |latency| micros(latency.p50_us)),
        known(up.latency, |latency| micros(latency.p99_us)),
        bytes(rates.read_bytes_per_s),
        bytes(rates.written_bytes_per_s),
        up.daemon.waiting
    )
}

fn volume(up: &UpView) -> Vec<Line<'static>> {
    let Some(volume) = &up.volume else { return Vec::new() };
    let limit = volume.cached_limit.map_or_else(String::new, |limit| format!(" of {}B", bytes(limit as f64)));
    vec![
        fact(
            "volume",
            format!(
                "{}, {} peers, {} pending, {} blocked, {} conflicts",
                volume.state, volume.peers, volume.pending, volume.blocked, volume.conflicts
            ),
        ),
        fact(
            "contents",
            format!(
                "{}, {}B{limit}, {} to download, {}B/s fetched, {}B/s evicted, {} misses offline",
                volume.cache_mode,
                bytes(volume.cached_bytes as f64),
                volume.missing_files,
                bytes(volume.fetched_bytes_per_s),
                bytes(volume.evicted_bytes_per_s),
                volume.offline_misses
            ),
        ),
    ]
}

fn ext4(up: &UpView) -> Option<Line<'static>> {
    let ext4 = up.ext4.as_ref()?;
    Some(fact(
        "ext4",
        format!(
            "{}, {} commits/s, {} metadata reads/s, {} corruptions, {} I/O errors",
            if ext4.writable { "writable" } else { "read-only" },
            rate(ext4.commits_per_s),
            rate(ext4.metadata_reads_per_s),
            ext4.corruptions,
            ext4.io_errors
        ),
    ))
}

fn right(text: impl Into<Text<'static>>) -> Cell<'static> {
    text.into().alignment(Alignment::Right).into()
}

fn heading(word: &'static str, numbers: &[&'static str]) -> Row<'static> {
    let word = std::iter::once(Cell::from(word));
    Row::new(word.chain(numbers.iter().map(|word| right(*word)))).style(HEADING)
}

fn operations(up: &UpView, scroll: usize) -> Table<'static> {
    let mut rows: Vec<(&String, &OperationView)> = up.operations.iter().collect();
    rows.sort_by(|(_, one), (_, other)| {
        other.per_s.total_cmp(&one.per_s).then_with(|| other.count.cmp(&one.count))
    });
    let rows = rows.into_iter().skip(scroll).map(|(name, operation)| {
        Row::new([
            Cell::from(printable(name).into_owned()),
            right(rate(operation.per_s)),
            right(rate(operation.errors_per_s)),
            right(known(operation.latency, |latency| micros(latency.p50_us))),
            right(known(operation.latency, |latency| micros(latency.p99_us))),
        ])
    });
    let widths = [15, 6, 6, 6, 6].map(Constraint::Length);
    Table::new(rows, widths).header(heading("OPERATION", &["OP/S", "ERR/S", "P50", "P99"])).column_spacing(1)
}

fn callers(up: &UpView) -> Table<'static> {
    let rows = up.callers.iter().map(|caller| {
        Row::new([
            right(known(caller.pid, |pid| pid.to_string())),
            right(rate(caller.requests_per_s)),
            Cell::from(caller.name().into_owned()),
            right(caller.uid.to_string()),
        ])
    });
    let widths = [Constraint::Length(7), Constraint::Length(6), Constraint::Min(8), Constraint::Length(6)];
    let heading = Row::new([right("PID"), right("REQ/S"), Cell::from("COMMAND"), right("USER")]);
    Table::new(rows, widths).header(heading.style(HEADING)).column_spacing(1)
}
