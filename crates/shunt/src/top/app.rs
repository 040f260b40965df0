//! The state of the display, and what keys change in it.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use shunt_fuse::mount::Dev;

use crate::error::Result;

use super::sort::{SortKey, select};
use super::view::{MountView, View};

/// The shortest interval.
pub const MIN_INTERVAL: Duration = Duration::from_millis(200);
/// The longest interval.
pub const MAX_INTERVAL: Duration = Duration::from_secs(3600);
/// Limit of the filter, in characters.
const MAX_FILTER_CHARS: usize = 200;
/// Rows that a page up or down moves.
const PAGE: usize = 10;
/// Keys that choose a column directly.
const COLUMN_KEYS: [(char, SortKey); 8] = [
    ('1', SortKey::Mount),
    ('2', SortKey::Ops),
    ('3', SortKey::Errors),
    ('4', SortKey::P50),
    ('5', SortKey::P99),
    ('6', SortKey::Read),
    ('7', SortKey::Write),
    ('8', SortKey::Passthrough),
];

/// A page of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// All mounts.
    Mounts,
    /// One mount.
    Details(Dev),
}

/// The consequence of a key for the loop of the display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// End the display.
    Quit,
    /// Stop the process, as a shell's job control does.
    Suspend,
    /// Take readings at another interval.
    SetInterval(Duration),
    /// Take a reading now.
    ReadNow,
}

/// The state of the display.
#[derive(Debug)]
pub struct App {
    pub(super) view: View,
    /// The time of the last view.
    pub(super) updated: Option<Instant>,
    /// The reason why the mounts cannot be read.
    pub(super) error: Option<String>,
    pub(super) page: Page,
    pub(super) sort: SortKey,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// The filter before it was edited; none while it is not edited.
    pub(super) editing: Option<String>,
    pub(super) help: bool,
    pub(super) paused: bool,
    pub(super) interval: Duration,
    /// The mount under the cursor.
    pub(super) selected: Option<Dev>,
    /// First operation shown of a mount.
    pub(super) scroll: usize,
}

impl App {
    /// A display without mounts yet.
    pub fn new(sort: SortKey, reversed: bool, filter: String, interval: Duration) -> Self {
        App {
            view: View::default(),
            updated: None,
            error: None,
            page: Page::Mounts,
            sort,
            reversed,
            filter,
            editing: None,
            help: false,
            paused: false,
            interval,
            selected: None,
            scroll: 0,
        }
    }

    /// Takes over a new view, unless the display is paused.
    pub fn update(&mut self, view: Result<View>) {
        match view {
            _ if self.paused => return,
            Ok(view) => (self.view, self.error) = (view, None),
            Err(failure) => self.error = Some(failure.to_string()),
        }
        self.updated = Some(Instant::now());
        self.keep_selection();
    }

    /// The mounts that match the filter, in order.
    pub fn mounts(&self) -> Vec<&MountView> {
        select(&self.view, &self.filter, self.sort, self.reversed)
    }

    /// The row under the cursor.
    pub fn selected_row(&self) -> Option<usize> {
        self.mounts().iter().position(|mount| Some(mount.dev) == self.selected)
    }

    /// The mount of the page with details; none if it was unmounted.
    pub fn detailed(&self) -> Option<&MountView> {
        let Page::Details(dev) = self.page else { return None };
        self.view.mounts.iter().find(|mount| mount.dev == dev)
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Action::Quit,
                KeyCode::Char('z') => return Action::Suspend,
                KeyCode::Char('u') if self.editing.is_some() => self.filter.clear(),
                // ^L, as in other full-screen programs.
                KeyCode::Char('l') => return Action::ReadNow,
                _ => {}
            }
            self.keep_selection();
            return Action::Draw;
        }
        if self.editing.is_some() {
            self.edit(key.code);
            return Action::Draw;
        }
        if self.help {
            self.help = false;
            return if key.code == KeyCode::Char('q') { Action::Quit } else { Action::Draw };
        }
        self.command(key.code)
    }

    fn command(&mut self, code: KeyCode) -> Action {
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.help = true,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => return self.back(code),
            KeyCode::Enter | KeyCode::Right if self.page == Page::Mounts => {
                if let Some(dev) = self.selected {
                    (self.page, self.scroll) = (Page::Details(dev), 0);
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.navigate(|at, _| at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.navigate(|at, _| at + 1),
            KeyCode::PageUp => self.navigate(|at, _| at.saturating_sub(PAGE)),
            KeyCode::PageDown => self.navigate(|at, _| at + PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.navigate(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.navigate(|_, last| last),
            KeyCode::Char('s' | '>') => self.sort = self.sort.next(false),
            KeyCode::Char('S' | '<') => self.sort = self.sort.next(true),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/') => self.editing = Some(self.filter.clone()),
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                return if self.paused { Action::Draw } else { Action::ReadNow };
            }
            KeyCode::Char('+' | '=') => return self.set_interval(self.interval * 2),
            KeyCode::Char('-') => return self.set_interval(self.interval / 2),
            KeyCode::Char(c) => {
                if let Some((_, sort)) = COLUMN_KEYS.iter().find(|(key, _)| *key == c) {
                    // A column that is chosen again is sorted the other way round.
                    self.reversed = self.sort == *sort && !self.reversed;
                    self.sort = *sort;
                }
            }
            _ => {}
        }
        Action::Draw
    }

    fn back(&mut self, code: KeyCode) -> Action {
        match self.page {
            Page::Details(_) => self.page = Page::Mounts,
            Page::Mounts if code == KeyCode::Esc && !self.filter.is_empty() => {
                self.filter.clear();
                self.keep_selection();
            }
            Page::Mounts => {}
        }
        Action::Draw
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.editing = None,
            KeyCode::Esc => self.filter = self.editing.take().unwrap_or_default(),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < MAX_FILTER_CHARS => self.filter.push(c),
            _ => {}
        }
        self.keep_selection();
    }

    /// Moves the cursor, or scrolls the operations of a mount.
    fn navigate(&mut self, to: impl Fn(usize, usize) -> usize) {
        if self.page == Page::Mounts {
            let mounts: Vec<Dev> = self.mounts().iter().map(|mount| mount.dev).collect();
            let Some(last) = mounts.len().checked_sub(1) else { return };
            let at = mounts.iter().position(|dev| Some(*dev) == self.selected).unwrap_or_default();
            self.selected = mounts.get(to(at, last).min(last)).copied();
        } else {
            let rows =
                self.detailed().and_then(|mount| mount.up.as_ref()).map_or(0, |up| up.operations.len());
            let last = rows.saturating_sub(1);
            self.scroll = to(self.scroll, last).min(last);
        }
    }

    fn set_interval(&mut self, interval: Duration) -> Action {
        self.interval = interval.clamp(MIN_INTERVAL, MAX_INTERVAL);
        Action::SetInterval(self.interval)
    }

    /// The cursor stays on its mount; if that is not shown any more, it goes to the first one.
    fn keep_selection(&mut self) {
        if self.selected_row().is_none() {
            self.selected = self.mounts().first().map(|mount| mount.dev);
        }
    }
}
