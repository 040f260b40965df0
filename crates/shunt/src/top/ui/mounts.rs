//! The table of all mounts.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::{ALERT, HEADING};
use crate::text::printable;
use crate::top::app::App;
use crate::top::format::{UNKNOWN, bytes, known, micros, path, percent, rate};
use crate::top::sort::SortKey;
use crate::top::view::MountView;

/// A column after the mount point.
struct Column {
    heading: &'static str,
    width: u16,
    /// The column is shown from this width of the screen on.
    from: u16,
    alignment: Alignment,
    sort: Option<SortKey>,
    text: fn(&MountView) -> String,
}

/// Narrowest column of the mount points.
const MIN_MOUNT_WIDTH: u16 = 10;

const COLUMNS: &[Column] = &[
    number("OP/S", 5, 0, SortKey::Ops, |mount| known(mount.rates(), |rates| rate(rates.operations_per_s))),
    number("ERR/S", 6, 100, SortKey::Errors, |mount| known(mount.rates(), |rates| rate(rates.errors_per_s))),
    number("P50", 6, 60, SortKey::P50, |mount| known(mount.latency(), |latency| micros(latency.p50_us))),
    number("P99", 6, 40, SortKey::P99, |mount| known(mount.latency(), |latency| micros(latency.p99_us))),
    number("READ/S", 7, 60, SortKey::Read, |mount| {
        known(mount.rates(), |rates| bytes(rates.read_bytes_per_s))
    }),
    number("WRITE/S", 8, 60, SortKey::Write, |mount| {
        known(mount.rates(), |rates| bytes(rates.written_bytes_per_s))
    }),
    number("PASS", 5, 70, SortKey::Passthrough, |mount| {
        known(mount.up.as_ref().and_then(|up| up.passthrough.share), percent)
    }),
    word("CACHE", 9, 78, cache),
    word("CALLER", 15, 50, caller),
    word("KIND", 7, 110, |mount| printable(&mount.kind).into_owned()),
    word("SOURCE", 24, 140, |mount| path(&mount.source, 24)),
];

const fn number(
    heading: &'static str,
    width: u16,
    from: u16,
    sort: SortKey,
    text: fn(&MountView) -> String,
) -> Column {
    Column { heading, width, from, alignment: Alignment::Right, sort: Some(sort), text }
}

const fn word(heading: &'static str, width: u16, from: u16, text: fn(&MountView) -> String) -> Column {
    Column { heading, width, from, alignment: Alignment::Left, sort: None, text }
}

/// The state of the cache in one word: of a volume whether it is online, and the hit rate.
fn cache(mount: &MountView) -> String {
    let Some(up) = &mount.up else { return UNKNOWN.to_owned() };
    match (&up.volume, up.cache.hit_share) {
        (Some(volume), _) if volume.state != "online" => printable(&volume.state).into_owned(),
        (_, Some(share)) => format!("{} hit", percent(share)),
        (Some(volume), None) => printable(&volume.cache_mode).into_owned(),
        (None, None) => {
            let mode = up.cache.mode.strip_prefix("coherent by ").unwrap_or(&up.cache.mode);
            printable(mode.split([' ', ',', ':']).next().unwrap_or(mode)).into_owned()
        }
    }
}

/// The busiest process that has a name, or else the busiest one.
fn caller(mount: &MountView) -> String {
    let Some(up) = &mount.up else { return mount.state.to_owned() };
    let named = up.callers.iter().find(|caller| caller.command.is_some());
    known(named.or(up.callers.first()), |caller| match caller.pid {
        None | Some(0) => caller.name().into_owned(),
        Some(pid) => format!("{pid} {}", caller.name()),
    })
}

/// Draws the table, with the cursor.
pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mounts = app.mounts();
    if mounts.is_empty() {
        let text = match app.updated {
            None => "reading the mounts ...",
            Some(_) if app.view.mounts.is_empty() => "no mounts of shunt on this machine",
            Some(_) => "no mount matches the filter",
        };
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| area.width >= column.from).collect();
    let used: u16 = columns.iter().map(|column| column.width + 1).sum();
    let mount_width = area.width.saturating_sub(used).max(MIN_MOUNT_WIDTH);
    let heading = |text: &str, sort: Option<SortKey>, alignment| {
        let arrow = match (sort == Some(app.sort), app.reversed) {
            (false, _) => "",
            (true, false) => "\u{25bc}",
            (true, true) => "\u{25b2}",
        };
        Line::styled(format!("{text}{arrow}"), HEADING).alignment(alignment)
    };
    let mut headings = vec![Cell::from(heading("MOUNT", Some(SortKey::Mount), Alignment::Left))];
    headings.extend(
        columns.iter().map(|column| Cell::from(heading(column.heading, column.sort, column.alignment))),
    );
    let rows = mounts.iter().map(|mount| {
        let mut cells = vec![Cell::from(path(&mount.mountpoint, mount_width.into()))];
        cells.extend(
            columns.iter().map(|column| Text::from((column.text)(mount)).alignment(column.alignment).into()),
        );
        Row::new(cells).style(if mount.up.is_none() { ALERT } else { Style::new() })
    });
    let mut widths = vec![Constraint::Length(mount_width)];
    widths.extend(columns.iter().map(|column| Constraint::Length(column.width)));
    let table = Table::new(rows, widths)
        .header(Row::new(headings))
        .column_spacing(1)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::default().with_selected(app.selected_row());
    frame.render_stateful_widget(table, area, &mut state);
}
