//! The list of keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::NAME;

const KEYS: &[(&str, &str)] = &[
    ("Up Down j k", "select a mount, or scroll its operations"),
    ("PageUp PageDown", "ten rows; Home and End: first and last"),
    ("Enter", "operations and callers of the mount"),
    ("Esc", "back to all mounts; clear the filter"),
    ("s S", "sort by the next or previous column"),
    ("1 ... 8", "mount, op/s, err/s, p50, p99, read, write, pass"),
    ("r", "reverse the order"),
    ("/", "show only mounts, sources and callers with a text"),
    ("+ -", "double or halve the interval"),
    ("Space", "pause and continue"),
    ("q Ctrl-C", "quit; Ctrl-Z: suspend"),
];

/// Draws it over the middle of the screen.
pub fn draw(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> = KEYS
        .iter()
        .map(|(keys, meaning)| {
            Line::from(vec![Span::styled(format!(" {keys:<16}"), NAME), (*meaning).into()])
        })
        .collect();
    let width = lines.iter().map(Line::width).max().unwrap_or_default() as u16 + 3;
    let area = area.centered(Constraint::Length(width), Constraint::Length(lines.len() as u16 + 2));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys of shunt top ")), area);
}
