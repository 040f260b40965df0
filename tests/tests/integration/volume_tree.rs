//! Several volumes in one tree on two nodes, configured by files in one of the volumes.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use shunt_test_support::cmd::{one_line, run_for, within};
use shunt_test_support::{needs_mount, port};
use shunt_tests::volume::Mount;
use shunt_tests::{binary, lower_fs, mounts};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// Volumes, and nodes that mount a tree of them.
struct TreeFixture {
    dir: TempDir,
}

impl TreeFixture {
    fn new(volumes: &[&str]) -> Self {
        let site = Self { dir: lower_fs::temp_dir() };
        for name in ["site"].iter().chain(volumes) {
            run_for(20, &mut site.command(&["volume", "create", name])).ok();
        }
        site
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = binary::command(args);
        command.env("XDG_DATA_HOME", self.dir.path()).env("HOME", self.dir.path());
        command
    }

    fn tree_command(&self, node: &str) -> Command {
        let at = self.dir.path().join(node);
        fs::create_dir_all(&at).unwrap();
        let mut command = self.command(&["volume", "tree", "--daemon", "--node", node, "--cache"]);
        command.arg(self.dir.path().join(format!("cache-{node}"))).arg("site").arg(at);
        command
    }

    fn tree(&self, node: &str) -> Tree {
        run_for(30, &mut self.tree_command(node)).ok();
        Tree(Mount::of(&self.dir.path().join(node)))
    }
}

struct Tree(Mount);

impl Tree {
    fn at(&self, path: &str) -> std::path::PathBuf {
        self.0.at().join(path)
    }

    fn write(&self, file: &str, text: &str) {
        let file = self.at(".tree").join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // Atomically, as is good practice.
        let new = file.with_extension("tmp");
        fs::write(&new, text).unwrap();
        fs::rename(&new, &file).unwrap();
    }

    fn status(&self) -> serde_json::Value {
        self.0.status()
    }

    #[track_caller]
    fn becomes(&self, what: &str, is: impl Fn(&serde_json::Value) -> bool) {
        let came = within(PATIENCE, || is(&self.status()));
        assert!(came, "{what} did not come on {}: {}", self.0.at().display(), self.status());
    }

    /// Returns the mounted volumes with their mount points.
    fn mounted(&self) -> Vec<String> {
        let status = self.status();
        let volumes = status["volumes"].as_array().unwrap();
        let mounted = volumes.iter().filter(|volume| volume["status"] == "mounted");
        mounted.map(|volume| format!("{} at {}", text(&volume["name"]), text(&volume["place"]))).collect()
    }

    #[track_caller]
    fn has(&self, volumes: &[&str]) {
        self.becomes(&format!("{volumes:?}"), |_| self.mounted() == volumes);
    }

    fn is_mounted(&self, path: &str) -> bool {
        mounts::count(&self.at(path)) == 1
    }
}

fn text(value: &serde_json::Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_comes_moves_and_goes_on_all_machines() {
    needs_mount!();
    let site = TreeFixture::new(&["team", "notes"]);
    let (ant, bee) = (site.tree("ant"), site.tree("bee"));
    assert!(ant.is_mounted(".tree") && bee.is_mounted(".tree"));
    let numbers = [ant.at("").metadata().unwrap().ino(), bee.at("").metadata().unwrap().ino()];

    ant.write("volumes/team.toml", "place = \"work/team\"\n");
    ant.write("volumes/notes.toml", "");
    for tree in [&ant, &bee] {
        tree.has(&["notes at notes", "team at work/team"]);
        assert_eq!(names(&tree.at("")), [".tree", "notes", "work"]);
        assert_eq!(names(&tree.at("work")), ["team"]);
    }
    fs::write(ant.at("work/team/plan"), "first").unwrap();
    assert_eq!(fs::read_to_string(bee.at("work/team/plan")).unwrap(), "first");
    // Each volume has its own mount, and supports the volume commands.
    let printed = run_for(20, binary::command(&["volume", "status"]).arg(bee.at("work/team"))).ok();
    assert!(printed.contains("team as bee"), "{printed}");
    assert!(fs::create_dir(ant.at("mine")).is_err() && fs::write(ant.at("work/file"), "").is_err());

    // A move by the other node takes effect here once the mount is no longer in use.
    let open = File::open(ant.at("work/team/plan")).unwrap();
    bee.write("volumes/team.toml", "place = \"done/team\"\n");
    bee.has(&["notes at notes", "team at done/team"]);
    assert!(
        within(PATIENCE, || names(&bee.at("")) == [".tree", "done", "notes"]),
        "{:?}",
        names(&bee.at(""))
    );
    ant.becomes("a word of who uses it", |status| {
        status["volumes"]
            .as_array()
            .unwrap()
            .iter()
            .any(|volume| text(&volume["error"]).contains("while it is in use"))
    });
    assert_eq!(fs::read_to_string(ant.at("work/team/plan")).unwrap(), "first");
    drop(open);
    ant.has(&["notes at notes", "team at done/team"]);
    assert_eq!(fs::read_to_string(ant.at("done/team/plan")).unwrap(), "first");

    // On one node only.
    bee.write("nodes/ant.toml", "");
    bee.write("volumes/team.toml", "place = \"done/team\"\n[on.ant]\nshown = false\n");
    ant.has(&["notes at notes"]);
    assert!(within(PATIENCE, || names(&ant.at("")) == [".tree", "notes"]), "{:?}", names(&ant.at("")));
    assert!(bee.is_mounted("done/team"));
    fs::remove_file(ant.at(".tree/volumes/team.toml")).unwrap();
    bee.has(&["notes at notes"]);
    assert_eq!(numbers, [ant.at("").metadata().unwrap().ino(), bee.at("").metadata().unwrap().ino()]);
}

#[test]
fn invalid_tree_configuration_changes_nothing() {
    needs_mount!();
    let site = TreeFixture::new(&["team"]);
    let ant = site.tree("ant");
    ant.write("volumes/team.toml", "place = \"work/team\"\n");
    ant.has(&["team at work/team"]);
    ant.write("volumes/team.toml", "\nplase = \"elsewhere\"\n");
    let is_said =
        |status: &serde_json::Value| text(&status["error"]).starts_with("volumes/team.toml:2: unknown field");
    ant.becomes("a complaint", is_said);
    let printed = run_for(20, binary::command(&["volume", "status"]).arg(ant.0.at())).ok();
    assert_eq!(printed.lines().filter(|line| line.contains("team.toml:2")).count(), 1, "{printed}");
    assert!(ant.is_mounted("work/team"));

    // Nor after a restart.
    drop(ant);
    let ant = site.tree("ant");
    ant.has(&["team at work/team"]);
    assert!(is_said(&ant.status()));
    ant.write("volumes/team.toml", "place = \"right\"\n");
    ant.has(&["team at right"]);
    assert_eq!(ant.status()["error"], serde_json::Value::Null);

    // Reading a pipe would block.
    let pipe = ant.at(".tree/volumes/pipe.toml");
    run_for(20, Command::new("mkfifo").arg(&pipe)).ok();
    ant.becomes("a word of the pipe", |status| text(&status["error"]).starts_with("volumes/pipe.toml: "));
    fs::remove_file(&pipe).unwrap();
    ant.becomes("no word of it", |status| status["error"] == serde_json::Value::Null);

    // A missing volume is reported, and does not affect the others.
    ant.write("volumes/nowhere.toml", "");
    ant.becomes("a word of it", |status| {
        let volumes = status["volumes"].as_array().unwrap();
        volumes.iter().any(|volume| volume["name"] == "nowhere" && text(&volume["error"]).contains("nowhere"))
    });
    assert!(ant.is_mounted("right"));
    assert_eq!(names(&ant.at("")), [".tree", "nowhere", "right"]);
}

/// A gateway that serves a volume.
struct Gateway {
    process: Child,
    address: String,
}

impl Gateway {
    fn of(site: &TreeFixture, volume: &str) -> Self {
        let address = format!("127.0.0.1:{}", port::reserve());
        let log = site.dir.path().join(format!("served-{volume}"));
        let mut serve =
            site.command(&["volume", "serve", volume, "--listen", &address, "--address", &address]);
        let process = serve.stdin(Stdio::null()).stdout(File::create(&log).unwrap()).spawn().unwrap();
        let gateway = Self { process, address };
        let serves = || fs::read_to_string(&log).is_ok_and(|printed| printed.contains("is served at "));
        assert!(within(PATIENCE, serves), "no gateway of {volume}");
        gateway
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn off_the_network_the_tree_is_as_it_was_and_another_way_leads_back() {
    needs_mount!();
    let site = TreeFixture::new(&["team"]);
    let home = site.dir.path().join("home");
    let away = |words: &[&str]| {
        let mut command = binary::command(&["volume"]);
        command.args(words).env("HOME", &home).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
        command
    };
    let at = site.dir.path().join("away");
    fs::create_dir_all(&at).unwrap();
    let mount = || {
        let mut tree = away(&["tree", "--daemon", "site"]);
        run_for(30, tree.arg(&at)).ok();
        Tree(Mount::of(&at))
    };
    let gateways = ["site", "team"].map(|volume| Gateway::of(&site, volume));
    for volume in ["site", "team"] {
        let token = run_for(20, &mut site.command(&["volume", "invite", volume])).ok();
        // In a file, which keeps it out of the process list.
        let file = site.dir.path().join("token");
        fs::write(&file, token).unwrap();
        let joined =
            away(&["join", "--node", "away", "-"]).stdin(File::open(&file).unwrap()).output().unwrap();
        assert!(joined.status.success(), "{joined:?}");
    }
    let tree = mount();
    tree.write("volumes/team.toml", "");
    tree.has(&["team at team"]);
    assert_eq!(tree.status()["node"], "away");
    fs::write(tree.at("team/file"), "here").unwrap();
    drop(tree);

    drop(gateways);
    let tree = mount();
    tree.has(&["team at team"]);
    assert_eq!(fs::read_to_string(tree.at("team/file")).unwrap(), "here");
    assert_eq!(Mount::status_at(&tree.at("team"))["state"], "unreachable");

    // Another gateway serves the volume now, and the tree's configuration is changed accordingly, while offline.
    let gate = Gateway::of(&site, "team");
    tree.write("nodes/gate.toml", &format!("address = \"{}\"\n", gate.address));
    tree.write("volumes/team.toml", "place = \"work/team\"\nthrough = \"gate\"\n");
    tree.has(&["team at work/team"]);
    let online = || Mount::status_at(&tree.at("work/team"))["state"] == "online";
    assert!(within(PATIENCE, online), "{}", Mount::status_at(&tree.at("work/team")));
    assert_eq!(fs::read_to_string(tree.at("work/team/file")).unwrap(), "here");
}

#[test]
fn names_of_users_lead_to_the_numbers_of_each_machine() {
    needs_mount!();
    let site = TreeFixture::new(&["team"]);
    let (ant, bee) = (site.tree("ant"), site.tree("bee"));
    ant.write(
        "users.toml",
        "[users]\nroot = 0\nada-of-tests = 71000\neve-of-tests = 71001\n[groups]\nstaff-of-tests = 72000\n",
    );
    ant.write("nodes/ant.toml", "[users]\nada-of-tests = 71000\n[groups]\nstaff-of-tests = 72000\n");
    ant.write("nodes/bee.toml", "[users]\nada-of-tests = 81000\n[groups]\nstaff-of-tests = 82000\n");
    ant.write("volumes/team.toml", "");
    ant.has(&["team at team"]);
    bee.has(&["team at team"]);
    let owner = |path: &Path| fs::metadata(path).map(|of| (of.uid(), of.gid())).unwrap_or_default();
    let shows = |path: &Path, wanted| {
        assert!(within(PATIENCE, || owner(path) == wanted), "{:?}, not {wanted:?}", owner(path));
    };
    fs::write(ant.at("team/plan"), "").unwrap();
    chown(ant.at("team/plan"), Some(71_000), Some(72_000)).unwrap();
    shows(&bee.at("team/plan"), (81_000, 82_000));
    chown(bee.at("team/plan"), Some(0), Some(82_000)).unwrap();
    shows(&ant.at("team/plan"), (0, 72_000));
    chown(bee.at("team/plan"), Some(81_000), None).unwrap();
    shows(&ant.at("team/plan"), (71_000, 72_000));
    // Eve has no local account, so no uid maps to her.
    let refused = chown(bee.at("team/plan"), Some(71_001), None).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EOVERFLOW));

    // Another uid on this node, with the file open and the volume still mounted.
    let open = File::open(bee.at("team/plan")).unwrap();
    let daemon = Mount::of(&bee.at("team"));
    let before = daemon.pid();
    ant.write("nodes/bee.toml", "[users]\nada-of-tests = 91000\n[default]\ngroup = 93000\n");
    shows(&bee.at("team/plan"), (91_000, 65_534));
    chown(bee.at("team/plan"), Some(91_000), None).unwrap();
    assert_eq!(open.metadata().unwrap().uid(), 91_000);
    assert_eq!(daemon.pid(), before);
    std::mem::forget(daemon);
}

#[test]
fn a_volume_comes_back_whose_daemon_was_killed() {
    needs_mount!();
    let site = TreeFixture::new(&["team"]);
    let ant = site.tree("ant");
    ant.write("volumes/team.toml", "");
    ant.has(&["team at team"]);
    // Unsynced data may be lost with a killed daemon.
    fs::write(ant.at("team/file"), "kept").unwrap();
    File::open(ant.at("team/file")).unwrap().sync_all().unwrap();
    Mount::of(&ant.at("team")).kill();
    assert!(ant.is_mounted(".tree"));
    assert!(within(PATIENCE, || fs::read_to_string(ant.at("team/file")).is_ok_and(|text| text == "kept")));
}

#[test]
fn a_tree_needs_the_volume_that_describes_it() {
    needs_mount!();
    let site = TreeFixture::new(&[]);
    fs::remove_dir_all(site.dir.path().join("shunt")).unwrap();
    let printed = run_for(30, &mut site.tree_command("ant")).fails();
    one_line(&printed, "site");
    assert_eq!(mounts::count(&site.dir.path().join("ant")), 0);
    assert!(within(PATIENCE, || mounts::processes_naming(site.dir.path()).is_empty()));
}
