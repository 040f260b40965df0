//! The page in a browser: what it shows, and the effect of its buttons on the files of other nodes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::{needs_mount, needs_tools, port, run};
use shunt_tests::binary;
use shunt_tests::polling::{names, read, soon};
use shunt_tests::volume::{Mount, Volume};

use super::browser::Browser;
use super::server::Server;

fn fragment(mount: &Mount, tab: &str) -> String {
    format!("/volume/{}/{tab}", mount.at().display().to_string().replace('/', "%2F"))
}

/// Two nodes with the same changes of both.
fn two_nodes(volume: &Volume) -> (Mount, Mount) {
    let (ant, bee) = (
        volume.mount_as("ant"),
        volume.mount_as_with("bee", &["--cache-mode", "cached", "--cache-size", "64M"]),
    );
    fs::write(ant.at().join("plan.txt"), "one\ntwo\nthree\n").unwrap();
    fs::write(ant.at().join("both.txt"), "start\n").unwrap();
    soon(|| !read(&bee.at().join("plan.txt")).is_empty() && !read(&bee.at().join("both.txt")).is_empty());
    (ant, bee)
}

/// Changes of both nodes to one file, of which `bee` shows the conflict.
fn make_conflict(ant: &Mount, bee: &Mount, name: &str) {
    bee.set_online(false);
    fs::write(ant.at().join(name), "start\nby ant\n").unwrap();
    fs::write(bee.at().join(name), "start\nby bee\n").unwrap();
    soon(|| ant.status()["pending"] == 0);
    bee.set_online(true);
    soon(|| bee.at().join(name).is_dir());
}

#[test]
fn conflicts_are_resolved_and_versions_restored() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let (ant, bee) = two_nodes(&volume);
    make_conflict(&ant, &bee, "both.txt");
    let server = Server::start(volume.aside(), &["--allow-changes"]);
    let browser = Browser::start();
    browser.open(&server.link);

    // All mounts, with rates of requests that are made meanwhile.
    browser.find("canvas.plot");
    browser.expect(&format!("{}", ant.at().display()));
    browser.expect("in conflict");
    let rate = "return [...document.querySelectorAll('canvas.plot')].some((plot) => \
        /^requests per second: ([1-9]|0\\.[1-9])/.test(plot.getAttribute('aria-label')))";
    let shown = within(Duration::from_secs(30), || {
        let _ = fs::write(ant.at().join("busy"), "x");
        fs::remove_file(ant.at().join("busy")).is_ok() && browser.script(rate) == true
    });
    assert!(shown, "{}", browser.text());
    browser.screenshot("mounts");

    // The conflict, with both sides.
    browser.show(&fragment(&bee, "conflicts"));
    browser.find(".conflict[data-path='both.txt']");
    browser.expect("by ant");
    browser.expect("by bee");
    browser.screenshot("conflict");
    browser.click(".conflict button[data-keep='ant']");
    browser.expect("There is no conflict.");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("both.txt")) == "start\nby ant\n");
    }

    // Both versions of the next one, which the page notices by itself. By the keyboard.
    make_conflict(&ant, &bee, "plan.txt");
    browser.find(".conflict[data-path='plan.txt']");
    browser.script("document.querySelector(\".conflict button[data-keep='both']\").focus()");
    browser.press(' ');
    browser.expect("There is no conflict.");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("plan.txt.conflict-bee")) == "start\nby bee\n");
        soon(|| read(&node.at().join("plan.txt")) == "start\nby ant\n");
    }

    // A version: compared, and restored.
    browser.show(&fragment(&bee, "files"));
    browser.click("button[data-versions='plan.txt']");
    browser.find("button[data-restore]");
    browser.script("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Compare with now').click()");
    browser.find("table.diff td.added");
    browser.screenshot("versions");
    browser.click("button[data-restore]");
    browser.expect("Restored plan.txt");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("plan.txt")) == "one\ntwo\nthree\n");
    }

    // The cache: pinned on the page, and shown in the state.
    browser
        .script("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Pin').click()");
    soon(|| bee.status()["pinned"].as_array().is_some_and(|pinned| pinned.len() == 1));
    browser.show(&fragment(&bee, "status"));
    browser.expect("Pinned paths");
    browser.screenshot("status");
    browser.script(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Unpin').click()",
    );
    soon(|| bee.status()["pinned"].as_array().is_some_and(Vec::is_empty));

    // Nothing is wider than a phone.
    browser.resize(500, 900);
    for tab in ["status", "files", "conflicts", "nodes"] {
        browser.show(&fragment(&bee, tab));
        std::thread::sleep(Duration::from_millis(300));
        let overflow = browser.script("return document.documentElement.scrollWidth - window.innerWidth");
        assert!(overflow.as_i64().is_some_and(|pixels| pixels <= 0), "{tab}: {overflow}");
    }
    browser.screenshot("phone");
    assert_eq!(names(ant.at()), names(bee.at()));
}

#[test]
fn nodes_are_invited_and_revoked() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let node = volume.mount_as("ant");
    let address = format!("127.0.0.1:{}", port::reserve());
    let command = |words: &[&str], data: &Path| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("HOME", data).env_remove("XDG_CONFIG_HOME").env("XDG_DATA_HOME", data);
        command
    };
    let mut serve = command(&["serve", "test", "--listen", &address, "--address", &address], volume.aside());
    let gateway = Ended(serve.stdout(Stdio::null()).spawn().unwrap());
    assert!(within(Duration::from_secs(20), || std::net::TcpStream::connect(&address).is_ok()));
    let server = Server::start(volume.aside(), &["--allow-changes"]);
    let browser = Browser::start();
    browser.open(&server.link);
    browser.find("canvas.plot");
    browser.show(&fragment(&node, "nodes"));
    browser.expect("No node has joined.");
    browser.click("#invite");
    browser.find("canvas.qr");
    browser.screenshot("invite");
    let token = browser.script("return document.getElementById('token').textContent");
    let home = tempfile::tempdir().unwrap();
    run(&mut command(&["join", "--node", "away", token.as_str().unwrap()], home.path())).ok();
    let listed = || -> Command { command(&["nodes", "list", "test"], volume.aside()) };
    assert!(run(&mut listed()).ok().contains("away"));
    browser.script("window.location.hash = '/'");
    browser.find("canvas.plot");
    browser.show(&fragment(&node, "nodes"));
    browser.click("button[data-revoke='away']");
    browser.expect("Really revoke away?");
    browser.click("button[data-revoke='away']");
    browser.expect("No node has joined.");
    assert!(!run(&mut listed()).ok().contains("away"));
    drop(gateway);
}
