//! The display, in a real terminal.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::{needs_mount, needs_tools};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::tmux::Tmux;
use shunt_tests::{binary, mounts};

use super::load::Load;

/// Starts `shunt top` for mounts below a directory.
#[track_caller]
fn top(tmux: &Tmux, args: &str) {
    tmux.enter(&format!("{} top --interval 0.3 {args}", binary::shunt().display()));
    assert!(tmux.shows(&["shunt top", "OP/S"]), "{}", tmux.screen());
    assert_eq!(tmux.value("#{alternate_on}"), "1");
}

/// The process id of `shunt top`.
fn pid(tmux: &Tmux) -> u32 {
    let shell = tmux.value("#{pane_pid}");
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).unwrap();
    children.split_whitespace().next_back().unwrap().parse().unwrap()
}

#[test]
fn a_mount_with_load_is_shown_sorted_detailed_and_left() {
    needs_mount!();
    needs_tools!("tmux");
    perform(Plan::daemon(), |mirror| {
        let _load = Load::on(mirror.mnt());
        let tmux = Tmux::start(80, 24);
        tmux.enter("echo before");
        top(&tmux, &format!("--filter {}", mirror.aside().display()));
        let own = std::process::id().to_string();
        assert!(tmux.shows(&["/mnt", "OP/S\u{25bc}", &own]), "{}", tmux.screen());
        let screen = tmux.screen();
        let row = screen.lines().find(|line| line.contains("/mnt")).unwrap().to_owned();
        assert!(row.contains("us"), "{row}");
        tmux.types("ss");
        assert!(tmux.shows(&["P50\u{25bc}"]), "{}", tmux.screen());
        tmux.types("r");
        assert!(tmux.until(|screen| !screen.contains('\u{25bc}')), "{}", tmux.screen());
        tmux.types("5r");
        assert!(tmux.shows(&["P99\u{25b2}"]), "{}", tmux.screen());
        tmux.press("Enter");
        let details = ["daemon", "passthrough", "off", "lookup", "COMMAND", &own];
        assert!(tmux.shows(&details), "{}", tmux.screen());
        // Smaller and larger, down to one that has no room for anything.
        for (width, height) in [(50, 12), (20, 3), (132, 43), (80, 24)] {
            tmux.resize(width, height);
            assert!(tmux.shows(&["shunt top"]), "{width}x{height}: {}", tmux.screen());
        }
        tmux.press("Escape");
        assert!(tmux.shows(&["P99\u{25b2}"]), "{}", tmux.screen());
        tmux.types(" ");
        assert!(tmux.shows(&["PAUSED"]), "{}", tmux.screen());
        tmux.types(" ");
        assert!(
            tmux.until(|screen| screen.contains("/mnt") && !screen.contains("PAUSED")),
            "{}",
            tmux.screen()
        );
        tmux.types("/nothing-matches");
        assert!(tmux.shows(&["no mount matches"]), "{}", tmux.screen());
        tmux.press("Escape");
        tmux.types("?");
        assert!(tmux.shows(&["keys of shunt top"]), "{}", tmux.screen());
        tmux.press("Escape");
        tmux.types("q");
        assert!(tmux.shows(&["before"]) && tmux.is_restored(), "{}", tmux.screen());
        tmux.enter("echo code $?");
        assert!(tmux.shows(&["code 0"]), "{}", tmux.screen());
    });
}

#[test]
fn signals_and_job_control_restore_the_terminal() {
    needs_tools!("tmux");
    let tmux = Tmux::start(80, 24);
    top(&tmux, "");
    tmux.press("C-z");
    assert!(tmux.shows(&["Stopped"]) && tmux.is_restored(), "{}", tmux.screen());
    tmux.enter("fg");
    assert!(
        tmux.until(|_| tmux.value("#{alternate_on}") == "1") && tmux.shows(&["OP/S"]),
        "{}",
        tmux.screen()
    );
    tmux.types("?");
    assert!(tmux.shows(&["keys of shunt top"]), "{}", tmux.screen());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        mounts::signal(pid(&tmux), signal);
        assert!(tmux.until(|_| tmux.value("#{alternate_on}") == "0") && tmux.is_restored(), "{signal:?}");
        top(&tmux, "");
    }
    tmux.press("C-c");
    assert!(tmux.until(|_| tmux.value("#{alternate_on}") == "0") && tmux.is_restored());
}

#[test]
fn mounts_come_hang_and_go() {
    needs_mount!();
    needs_tools!("tmux");
    // Other mounts of this machine may be on the screen, too.
    let tmux = Tmux::start(80, 60);
    let one = Plan::daemon().set().unwrap();
    top(&tmux, "--sort mount --filter mirror");
    let name = |path: &std::path::Path| {
        let text = path.to_str().unwrap();
        text[text.len() - 8..].to_owned()
    };
    let row = |name: &str| {
        let screen = tmux.screen();
        screen.lines().find(|line| line.contains(name)).map(str::to_owned).unwrap_or_default()
    };
    assert!(tmux.shows(&[&name(one.mnt())]), "{}", tmux.screen());
    let two = Plan::daemon().set().unwrap();
    let second = name(two.mnt());
    assert!(tmux.shows(&[&second]), "{}", tmux.screen());
    let hung = two.server().unwrap();
    mounts::stop(hung);
    let silent = tmux.until(|_| row(&second).contains("silent"));
    // Keys work while a daemon is waited for.
    let begun = Instant::now();
    tmux.types("?");
    let help = tmux.shows(&["keys of shunt top"]);
    let took = begun.elapsed();
    mounts::signal(hung, Signal::CONT);
    assert!(silent && help && took < Duration::from_secs(5), "{took:?} {}", tmux.screen());
    tmux.types("x");
    let recovered = tmux.until(|_| !row(&second).is_empty() && !row(&second).contains("silent"));
    assert!(recovered, "{}", tmux.screen());
    drop(two);
    assert!(tmux.until(|screen| !screen.contains(&second)), "{}", tmux.screen());
    assert!(tmux.shows(&[&name(one.mnt())]), "{}", tmux.screen());
    tmux.types("q");
    assert!(tmux.until(|_| tmux.value("#{alternate_on}") == "0") && tmux.is_restored());
}
