//! The page in a browser: what it shows, and the effect of its buttons on the files of other nodes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fantoccini::key::Key;
use shunt_test_support::cmd::{Ended, within};
use shunt_test_support::{needs_mount, needs_tools, port, run};
use shunt_tests::binary;
use shunt_tests::polling::{names, read, soon};
use shunt_tests::volume::{Mount, Volume};

use super::browser::{Browser, PHONE};
use super::server::Server;

/// How long requests are made for the plots of a picture.
const PICTURE_ACTIVITY: Duration = Duration::from_secs(55);

fn fragment(mount: &Mount, tab: &str) -> String {
    format!("/volume/{}/{tab}", mount.at().display().to_string().replace('/', "%2F"))
}

/// Two nodes that both have two files.
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

/// Makes requests until the page has plotted some, or longer for a picture.
fn expect_plots(browser: &Browser, mounts: [&Mount; 2]) {
    let has_rate = "return [...document.querySelectorAll('canvas.plot')].some((plot) => \
        /^requests per second: ([1-9]|0\\.[1-9])/.test(plot.getAttribute('aria-label')))";
    let end = Instant::now() + Browser::screenshots().map_or(Duration::ZERO, |_| PICTURE_ACTIVITY);
    let mut round = 0;
    let plotted = within(Duration::from_secs(30) + PICTURE_ACTIVITY, || {
        round += 1;
        for (mount, (name, requests)) in mounts.iter().zip([("draft", round % 40), ("notes", round % 10)]) {
            (0..requests).for_each(|_| fs::write(mount.at().join(name), "x").unwrap());
        }
        Instant::now() > end && browser.script(has_rate) == true
    });
    assert!(plotted, "{}", browser.text());
}

#[test]
fn conflicts_are_resolved_by_a_click_and_by_keys() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let (ant, bee) = two_nodes(&volume);
    make_conflict(&ant, &bee, "both.txt");
    let server = Server::start(volume.aside(), &["--allow-changes"]);
    let browser = Browser::start();
    browser.open(&server.link);

    browser.find("canvas.plot");
    browser.expect(&ant.at().display().to_string());
    browser.expect("conflicts: 1");
    expect_plots(&browser, [&ant, &bee]);
    browser.screenshot("web-mounts", volume.aside());

    browser.show(&fragment(&bee, "conflicts"));
    browser.find(".conflict[data-path='both.txt']");
    browser.expect("by ant");
    browser.expect("by bee");
    browser.click_button("Compare");
    browser.find("table.diff td.added");
    browser.screenshot("web-conflict", volume.aside());
    browser.click(".conflict button[data-keep='ant']");
    browser.expect("There is no conflict.");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("both.txt")) == "start\nby ant\n");
    }

    // The page notices the next conflict by itself. The Enter key keeps both versions.
    make_conflict(&ant, &bee, "plan.txt");
    browser.find(".conflict[data-path='plan.txt']");
    browser.tab_to(".conflict button[data-keep='both']");
    browser.press(Key::Enter);
    browser.expect("There is no conflict.");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("plan.txt.conflict-bee")) == "start\nby bee\n");
        soon(|| read(&node.at().join("plan.txt")) == "start\nby ant\n");
    }
    soon(|| names(ant.at()) == names(bee.at()));
}

#[test]
fn versions_are_restored_and_files_pinned() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let (ant, bee) = two_nodes(&volume);
    fs::write(ant.at().join("plan.txt"), "one\ntwo and a half\nthree\nfour\n").unwrap();
    soon(|| read(&bee.at().join("plan.txt")).ends_with("four\n"));
    let server = Server::start(volume.aside(), &["--allow-changes"]);
    let browser = Browser::start();
    browser.open(&server.link);
    browser.find("canvas.plot");

    browser.show(&fragment(&bee, "files"));
    browser.click("button[data-versions='plan.txt']");
    // The store may also have the state in which the file was truncated to be written again.
    browser.click_button_of_row("14 B", "Compare with now");
    browser.find("table.diff td.added");
    browser.screenshot("web-versions", volume.aside());
    browser.click_button_of_row("14 B", "Restore");
    browser.expect("Restored plan.txt");
    for node in [&ant, &bee] {
        soon(|| read(&node.at().join("plan.txt")) == "one\ntwo\nthree\n");
    }

    browser.click_button("Pin");
    soon(|| bee.status()["pinned"].as_array().is_some_and(|pinned| pinned.len() == 1));
    browser.show(&fragment(&bee, "status"));
    browser.expect("Pinned paths");
    browser.click_button("Unpin");
    soon(|| bee.status()["pinned"].as_array().is_some_and(Vec::is_empty));

    // Values that change leave the focus where it is.
    let received = |node: &Mount| node.status()["received"].as_u64().unwrap();
    let before = received(&bee);
    browser.find("dl");
    browser.script(
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Work offline').focus()",
    );
    fs::write(ant.at().join("more.txt"), "more").unwrap();
    soon(|| received(&bee) > before);
    soon(|| browser.text().contains(&format!("{} received", received(&bee))));
    assert_eq!(browser.script("return document.activeElement.textContent"), "Work offline");
    browser.click_button("Work offline");
    soon(|| bee.status()["state"] == "offline");
    browser.click_button("Go online");
    soon(|| bee.status()["state"] == "online");
}

#[test]
fn the_page_fits_a_phone_and_is_read_only_without_permission() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let (ant, bee) = two_nodes(&volume);
    make_conflict(&ant, &bee, "both.txt");
    let long = format!("{}.txt", "long name ".repeat(20));
    fs::write(bee.at().join(&long), "x ".repeat(5000)).unwrap();
    let server = Server::start(volume.aside(), &[]);
    let browser = Browser::phone();
    browser.open(&server.link);
    browser.find("canvas.plot");
    browser.expect("read-only");
    let fits = || {
        let widths = browser.script("return [window.innerWidth, document.documentElement.scrollWidth]");
        assert_eq!(widths, serde_json::json!([PHONE.0, PHONE.0]), "{}", browser.text());
    };
    fits();
    for (tab, expected) in [
        ("status", "local changes to send: "),
        ("files", "long name"),
        ("conflicts", "by bee"),
        ("nodes", "Start shunt web --allow-changes to invite"),
    ] {
        browser.show(&fragment(&bee, tab));
        browser.expect(expected);
        fits();
    }
    browser.show(&fragment(&bee, "files"));
    browser.click("button[data-versions^='long name']");
    browser.click_button("View");
    browser.expect("x x x");
    fits();
    for label in ["Pin", "Restore", "Invite", "Revoke"] {
        assert!(!browser.text().lines().any(|line| line == label), "{label}");
    }
}

#[test]
fn nodes_are_invited_and_revoked() {
    needs_mount!();
    needs_tools!("chromium", "chromedriver");
    let volume = Volume::new();
    let node = volume.mount_as("ant");
    let address = format!("127.0.0.1:{}", port::reserve());
    let registry = volume.aside().join("own place").display().to_string();
    let command = |words: &[&str], data: &Path| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("HOME", data).env_remove("XDG_CONFIG_HOME").env("XDG_DATA_HOME", data);
        command
    };
    let serve = ["serve", "test", "--listen", &address, "--address", &address, "--registry", &registry];
    let gateway = Ended(command(&serve, volume.aside()).stdout(Stdio::null()).spawn().unwrap());
    assert!(within(Duration::from_secs(20), || std::net::TcpStream::connect(&address).is_ok()));

    // Without the option the page says how to name the registry.
    let mut unaware = Server::start(volume.aside(), &[]);
    let cookie = unaware.log_in();
    let query = format!("{}api/nodes?mount={}", unaware.prefix(), node.at().display());
    let (status, reply) = unaware.request("GET", &query, &[&cookie], "");
    assert!(status == 422 && reply.contains("start `shunt web --registry test=FILE`"), "{reply}");
    assert_eq!(reply.lines().skip_while(|line| !line.is_empty()).count(), 2, "{reply}");
    drop(unaware);

    let server =
        Server::start(volume.aside(), &["--allow-changes", "--registry", &format!("test={registry}")]);
    let browser = Browser::start();
    browser.open(&server.link);
    browser.find("canvas.plot");
    browser.show(&fragment(&node, "nodes"));
    browser.expect("No node has joined.");
    browser.click("#invite");
    browser.find("canvas.qr");
    let token = browser.script("return document.getElementById('token').textContent");
    let home = tempfile::tempdir().unwrap();
    run(&mut command(&["join", "--node", "away", token.as_str().unwrap()], home.path())).ok();
    let list = || -> Command { command(&["nodes", "list", "--registry", &registry, "test"], volume.aside()) };
    assert!(run(&mut list()).ok().contains("away"));
    browser.show("/");
    browser.find("canvas.plot");
    browser.show(&fragment(&node, "nodes"));
    browser.click("button[data-revoke='away']");
    browser.expect("Really revoke away?");
    browser.click("button[data-revoke='away']");
    browser.expect("No node has joined.");
    assert!(!run(&mut list()).ok().contains("away"));
    drop(gateway);
}
