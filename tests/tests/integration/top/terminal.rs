//! The display, in a real terminal.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use shunt_test_support::cmd::within;
use shunt_test_support::{needs_mount, needs_tools};
use shunt_tests::fixture::{Plan, perform};
use shunt_tests::tmux::Tmux;
use shunt_tests::{binary, mounts};

use super::load::Load;

/// Starts `shunt top` for mounts below a directory.
#[track_caller]
fn top(tmux: &Tmux, args: &str) {
    tmux.enter(&format!("{} top --interval 0.3 {args}", binary::shunt().display()));
    assert!(tmux.shows(&["q quit"]), "{}", tmux.screen());
    assert_eq!(tmux.value("#{alternate_on}"), "1");
}

/// Waits until `shunt top` with this process id has ended, and reports whether the terminal is as it was before and the shell shows this
/// exit code.
#[track_caller]
fn ended(tmux: &Tmux, pid: u32, code: u8) -> bool {
    // The display reads what is typed while it lives.
    let ended = tmux.until(|_| !mounts::alive(pid));
    tmux.enter("echo code $?");
    ended && tmux.shows(&[&format!("code {code}")]) && tmux.is_restored()
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
        let pid = tmux.program();
        tmux.types("q");
        assert!(ended(&tmux, pid, 0) && tmux.shows(&["before"]), "{}", tmux.screen());
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
        tmux.until(|_| tmux.value("#{alternate_on}") == "1") && tmux.shows(&["q quit"]),
        "{}",
        tmux.screen()
    );
    // Raw mode is on again.
    tmux.types("?");
    assert!(tmux.shows(&["keys of shunt top"]), "{}", tmux.screen());
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let pid = tmux.program();
        mounts::signal(pid, signal);
        assert!(ended(&tmux, pid, code), "{signal:?}: {}", tmux.screen());
        top(&tmux, "");
    }
    let pid = tmux.program();
    tmux.press("C-c");
    assert!(ended(&tmux, pid, 0), "{}", tmux.screen());
}

#[test]
fn a_signal_to_stop_in_a_job_that_no_shell_can_continue_is_ignored() {
    needs_tools!("tmux");
    let tmux = Tmux::start(80, 24);
    // The shell is the leader of the session, and the terminal has no other process.
    tmux.enter(&format!("exec {} top --interval 0.3", binary::shunt().display()));
    assert!(tmux.shows(&["q quit"]), "{}", tmux.screen());
    tmux.press("C-z");
    tmux.types("?");
    assert!(tmux.shows(&["keys of shunt top"]), "{}", tmux.screen());
}

#[test]
fn a_closed_terminal_ends_the_display() {
    needs_tools!("tmux");
    let dir = tempfile::tempdir().unwrap();
    let status = dir.path().join("status");
    let tmux = Tmux::start(80, 24);
    // The shell in between survives the terminal. It passes on that SIGHUP is ignored.
    let shunt = binary::shunt();
    let script = format!("trap \"\" HUP; {} top; echo $? > {}", shunt.display(), status.display());
    tmux.enter(&format!("sh -c '{script}'"));
    assert!(tmux.shows(&["q quit"]), "{}", tmux.screen());
    drop(tmux);
    let code = || std::fs::read_to_string(&status).unwrap_or_default().trim().to_owned();
    assert!(within(Duration::from_secs(20), || !code().is_empty()));
    // By the signal, or because the terminal could not be written before the signal came.
    assert!(["129", "1"].contains(&code().as_str()), "{}", code());
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
    let pid = tmux.program();
    tmux.types("q");
    assert!(ended(&tmux, pid, 0), "{}", tmux.screen());
}
