//! The display, drawn to memory.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::draw;
use crate::process;
use crate::report::counters::{Caller, Ext4Report};
use crate::report::{Extension, Stat, VolumeReport};
use crate::top::app::{Action, App, Page};
use crate::top::processes::Processes;
use crate::top::reading::Reading;
use crate::top::sort::SortKey;
use crate::top::view::View;
use crate::top::view::tests::{reading, silent, stat, up};

fn readings() -> [Reading; 2] {
    let start = Instant::now();
    let callers =
        |requests| vec![Caller { tid: std::process::id(), uid: 1000, requests, since_s: 0, idle_s: 0 }];
    let mirror = |uptime_s, reads| {
        let mut stat = Stat {
            callers: callers(reads),
            pid_namespace: process::pid_namespace(),
            ..stat(uptime_s, reads)
        };
        stat.cache.mode = "coherent by fanotify".into();
        stat.passthrough.enabled = true;
        up(stat)
    };
    let volume = |uptime_s, reads| {
        let mut volume = VolumeReport { state: "online".into(), pending: 3, ..VolumeReport::default() };
        (volume.space.cache_hits, volume.space.cached_bytes) = (reads, 5 << 30);
        up(Stat { volume: Some(volume), ..stat(uptime_s, reads) })
    };
    let image = |uptime_s, reads| {
        let ext4 = Ext4Report { writable: true, commits: reads, ..Ext4Report::default() };
        up(Stat { ext4: Some(ext4), extension: Some(Extension::default()), ..stat(uptime_s, reads) })
    };
    let mounts = |n: u64| {
        let uptime_s = n as f64;
        vec![
            mirror(uptime_s, n * 100),
            volume(uptime_s, n * 3000),
            image(uptime_s, n * 20),
            silent("no reply in time"),
        ]
    };
    [reading(start, mounts(1)), reading(start + Duration::from_secs(1), mounts(2))]
}

fn app() -> App {
    let mut app = App::new(SortKey::Ops, false, String::new(), Duration::from_secs(1));
    let [before, now] = readings();
    app.update(Ok(View::between(Some(&before), &now, &mut Processes::default())));
    app
}

fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn press(app: &mut App, keys: &str) {
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn first_words(screen: &[String]) -> Vec<String> {
    let word = |line: &String| line.split_whitespace().next().unwrap_or_default().to_owned();
    screen[2..screen.len() - 1].iter().map(word).filter(|word| !word.is_empty()).collect()
}

#[test]
fn all_columns_fit_into_80_by_24() {
    let screen = screen(&app(), 80, 24);
    let sums = "shunt top  1 without reply  4 mounts  6240 op/s  read 12MB/s  written 0B/s";
    assert!(screen[0].starts_with(sums), "{}", screen[0]);
    let heading: Vec<_> = screen[1].split_whitespace().collect();
    assert_eq!(
        heading,
        ["MOUNT", "OP/S\u{25bc}", "P50", "P99", "READ/S", "WRITE/S", "PASS", "CACHE", "CALLER"]
    );
    assert!(screen[2].starts_with("/m1 ") && screen[2].contains(" 6000 ") && screen[2].contains("100% hit"));
    let caller = format!(" fanotify  {} ", std::process::id());
    assert!(screen[3].starts_with("/m0 ") && screen[3].contains(&caller), "{}", screen[3]);
    assert!(screen[5].starts_with("/m3 ") && screen[5].ends_with("silent"), "{}", screen[5]);
    assert!(screen[23].contains("q quit"));
}

#[test]
fn keys_sort_select_and_filter() {
    let mut app = app();
    assert_eq!(first_words(&screen(&app, 80, 24)), ["/m1", "/m0", "/m2", "/m3"]);
    press(&mut app, "r");
    assert_eq!(first_words(&screen(&app, 80, 24)), ["/m3", "/m2", "/m0", "/m1"]);
    press(&mut app, "1");
    assert_eq!(first_words(&screen(&app, 80, 24)), ["/m0", "/m1", "/m2", "/m3"]);
    press(&mut app, "11");
    assert_eq!(app.sort, SortKey::Mount);
    press(&mut app, "s");
    assert_eq!(app.sort, SortKey::Ops);
    press(&mut app, "/M2x\x08\n");
    assert_eq!(first_words(&screen(&app, 80, 24)), ["/m2"]);
    press(&mut app, "\n");
    assert!(app.detailed().is_some_and(|mount| mount.mountpoint == "/m2"));
    press(&mut app, "\x1b");
    assert_eq!((app.page, app.filter.as_str()), (Page::Mounts, "M2"));
    press(&mut app, "\x1b");
    assert_eq!(first_words(&screen(&app, 80, 24)).len(), 4);
    // An aborted edit restores the filter.
    press(&mut app, "/nothing");
    assert!(screen(&app, 80, 24)[1].contains("no mount matches"));
    press(&mut app, "\x1b");
    assert_eq!(app.filter, "");
}

#[test]
fn the_cursor_stays_on_its_mount() {
    let mut app = app();
    press(&mut app, "j");
    assert_eq!(app.selected_row(), Some(1));
    press(&mut app, "r");
    assert_eq!(app.selected_row(), Some(2));
    press(&mut app, "jjjjjjj");
    assert_eq!(app.selected_row(), Some(3));
    let [_, mut now] = readings();
    now.mounts.truncate(1);
    app.update(Ok(View::between(None, &now, &mut Processes::default())));
    assert_eq!(app.selected_row(), Some(0));
}

#[test]
fn details_of_each_kind() {
    let mut app = app();
    press(&mut app, "\n");
    let text = screen(&app, 80, 24).join("\n");
    for part in ["OPERATION", "read", "COMMAND", "online", "3 pending", "5.0GB", "100% hits"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    press(&mut app, "\x1bj\n");
    let text = screen(&app, 80, 24).join("\n");
    for part in ["on, 50% of opens", "coherent by fanotify", "100", "1000"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    press(&mut app, "\x1bj\n");
    assert!(screen(&app, 80, 24).join("\n").contains("writable, 20 commits/s"));
    press(&mut app, "\x1bj\n");
    assert!(screen(&app, 80, 24).join("\n").contains("silent: no reply in time"));
    // It is unmounted while it is shown.
    app.update(Ok(View::default()));
    assert!(screen(&app, 80, 24)[1].contains("unmounted"));
    press(&mut app, "\x1b");
    assert!(screen(&app, 80, 24)[1].contains("no mounts of shunt"));
}

#[test]
fn every_size_can_be_drawn() {
    let mut app = app();
    for _ in 0..4 {
        for width in [1, 2, 5, 10, 20, 40, 60, 79, 80, 100, 150, 300] {
            for height in [1, 2, 3, 5, 10, 24, 100] {
                screen(&app, width, height);
            }
        }
        // Details, help, and the filter.
        let key = if app.page == Page::Mounts { "\n" } else { "?" };
        press(&mut app, key);
        if app.help {
            app.page = Page::Mounts;
            app.editing = Some(String::new());
        }
    }
    let wide = screen(&self::app(), 150, 24)[1].clone();
    for heading in ["ERR/S", "KIND", "SOURCE"] {
        assert!(wide.contains(heading), "{heading} is not in {wide}");
    }
}

#[test]
fn pause_interval_and_help() {
    let mut app = app();
    press(&mut app, " ");
    app.update(Ok(View::default()));
    // However long the sums are.
    assert!(screen(&app, 20, 24)[0].contains("PAUSED") && app.view.mounts.len() == 4);
    press(&mut app, " ?");
    assert!(screen(&app, 80, 24).join("\n").contains("keys of shunt top"));
    press(&mut app, "x");
    let plus = app.key(KeyEvent::new(KeyCode::Char('+'), KeyModifiers::NONE));
    assert_eq!(plus, Action::SetInterval(Duration::from_secs(2)));
    press(&mut app, "----------");
    assert_eq!(app.interval, crate::top::MIN_INTERVAL);
    app.update(Err(crate::error::failed("cannot read the mounts")));
    assert!(screen(&app, 80, 24)[23].contains("cannot read the mounts"));
    let quit = app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(quit, Action::Quit);
}

#[test]
fn a_view_that_is_not_renewed_is_old() {
    let app = app();
    let updated = app.updated.unwrap();
    assert_eq!(super::late(&app, updated + Duration::from_secs(2)), None);
    assert_eq!(super::late(&app, updated + Duration::from_secs(7)), Some(7));
}
