//! Draws the display. Every function draws into the area it is given, however small that is.

mod details;
mod help;
mod mounts;
#[cfg(test)]
mod tests;

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{App, Page};
use super::format::{bytes, rate};
use crate::text::printable;

/// Times the interval after which a view that was not renewed is reported as old.
const LATE_INTERVALS: u32 = 3;

/// Headings of tables.
const HEADING: Style = Style::new().add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED);
/// Keys and names of figures.
const NAME: Style = Style::new().fg(Color::Cyan);
/// Figures that need attention.
const ALERT: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws all.
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(summary(app)), head);
    match app.page {
        Page::Mounts => mounts::draw(frame, body, app),
        Page::Details(_) => details::draw(frame, body, app),
    }
    draw_foot(frame, foot, app);
    if app.help {
        help::draw(frame, frame.area());
    }
}

/// The first line: what is unusual, before a narrow terminal cuts it off, and the sums of all mounts.
fn summary(app: &App) -> Line<'static> {
    let mounts = &app.view.mounts;
    let sum = |read: fn(&super::view::Rates) -> f64| -> f64 {
        mounts.iter().filter_map(|mount| mount.rates()).map(read).sum()
    };
    let mut spans = vec![Span::styled("shunt top", NAME.add_modifier(Modifier::BOLD))];
    if app.paused {
        spans.push(Span::styled("  PAUSED", ALERT));
    } else if let Some(late) = late(app, Instant::now()) {
        spans.push(Span::styled(format!("  {late} s old"), ALERT));
    }
    let down = mounts.iter().filter(|mount| mount.up.is_none()).count();
    if down > 0 {
        spans.push(Span::styled(format!("  {down} without reply"), ALERT));
    }
    spans.extend([
        format!("  {} mounts", mounts.len()).into(),
        format!("  {} op/s", rate(sum(|rates| rates.operations_per_s))).into(),
        format!("  read {}B/s", bytes(sum(|rates| rates.read_bytes_per_s))).into(),
        format!("  written {}B/s", bytes(sum(|rates| rates.written_bytes_per_s))).into(),
        format!("  every {:?}", app.interval).into(),
    ]);
    Line::from(spans)
}

/// Seconds since the last view, if it should have been renewed long ago.
fn late(app: &App, now: Instant) -> Option<u64> {
    let age = now.saturating_duration_since(app.updated?);
    (age > app.interval * LATE_INTERVALS && age.as_secs() >= 3).then_some(age.as_secs())
}

/// The last line: the filter, an error, or the keys.
fn draw_foot(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let line = if app.editing.is_some() {
        let text = format!("/{}", printable(&app.filter));
        let at = Span::raw(&*text).width().min(usize::from(area.width.saturating_sub(1)));
        if area.height > 0 && area.width > 0 {
            frame.set_cursor_position((area.x + at as u16, area.y));
        }
        Line::from(text)
    } else if let Some(error) = &app.error {
        Line::styled(error.clone(), ALERT)
    } else {
        let keys: &[(&str, &str)] = match app.page {
            Page::Mounts => {
                &[("q", "quit"), ("Enter", "details"), ("s", "sort"), ("r", "reverse"), ("/", "filter")]
            }
            Page::Details(_) => &[("q", "quit"), ("Esc", "back"), ("Up Down", "scroll")],
        };
        let common: &[(&str, &str)] = &[("Space", "pause"), ("?", "help")];
        let mut spans = Vec::new();
        for (key, meaning) in keys.iter().chain(common) {
            spans.extend([Span::styled(*key, NAME), format!(" {meaning}  ").into()]);
        }
        if !app.filter.is_empty() {
            spans.push(format!("filter: {}", printable(&app.filter)).into());
        }
        Line::from(spans)
    };
    frame.render_widget(Paragraph::new(line), area);
}
