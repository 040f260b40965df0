//! The simulated machines: servers, a gateway, possibly another one behind it, and three nodes of one volume.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use shunt_test_support::cmd::within;
use shunt_test_support::servers::{Postgres, S3};
use shunt_test_support::{run, run_for};
use shunt_tests::lower_fs::temp_dir;
use shunt_tests::volume::Mount;
use shunt_tests::{binary, mounts};
use tempfile::TempDir;

use crate::volume_soak::coverage::Coverage;
use crate::volume_soak::durability_ledger::Ledger;
use crate::volume_soak::netns::{Cut, Machine, Netns};
use crate::volume_soak::proxy::{LinkFaults, pass};

/// The last node uses the gateway, the others the stores. With two gateways, it is behind both.
pub const NODES: [&str; 3] = ["ant", "bee", "cat"];
const CACHE_MODES: [&[&str]; 3] = [&["--cache-mode", "full"], &["--cache-size", "4M"], &[]];
const BEHIND_GATEWAY: usize = 2;
/// Machine numbers of the gateways: the one at the stores, and the one behind it.
pub const GATEWAYS: [usize; 2] = [3, 4];
const GATEWAY_NAMES: [&str; 2] = ["gateway", "branch"];
const GATEWAY_PORT: u16 = 7070;
/// Directory with all files of the users: it does not exist where nothing is mounted.
const WORK: &str = "work";
/// A program may have much to do when it starts.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Cluster {
    pub ledger: Mutex<Ledger>,
    pub counts: Arc<Coverage>,
    /// Errors that must not occur.
    pub wrong: Mutex<Vec<String>>,
    pub nodes: Vec<Node>,
    machines: Vec<Machine>,
    link_faults: Vec<Arc<LinkFaults>>,
    postgres: Mutex<Postgres>,
    postgres_port: u16,
    s3: Mutex<S3>,
    s3_port: u16,
    /// One per gateway of this cluster.
    gateways: Vec<Mutex<Option<Child>>>,
    dir: TempDir,
}

/// A node and its mount.
pub struct Node {
    pub name: &'static str,
    at: PathBuf,
    daemon: Mutex<Option<Child>>,
    is_away: AtomicBool,
    /// Set by its user; outlives the daemon.
    is_to_be_offline: Mutex<bool>,
    kills: AtomicU64,
}

impl Node {
    pub fn at(&self) -> &Path {
        &self.at
    }

    pub fn work(&self) -> PathBuf {
        self.at.join(WORK)
    }

    pub fn status(&self) -> serde_json::Value {
        Mount::status_at(&self.at)
    }

    /// Returns how often it was killed; `None` while it is not running.
    pub fn life(&self) -> Option<u64> {
        (!self.is_away.load(Ordering::SeqCst)).then(|| self.kills.load(Ordering::SeqCst))
    }
}

pub fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn home(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(ip.into(), port)
}

impl Cluster {
    /// Returns `None` without the required programs.
    pub fn new(counts: &Arc<Coverage>, gateways: usize) -> Option<Self> {
        let (postgres, s3) = (Postgres::start(false)?, S3::start()?);
        let dir = temp_dir();
        let (host, hub) = (Netns::here(), Netns::new());
        let machines: Vec<Machine> = (1..=5).map(|number| Machine::new(&hub, number)).collect();
        let link_faults: Vec<Arc<LinkFaults>> = machines.iter().map(|_| Arc::default()).collect();
        for (n, machine) in machines.iter().enumerate() {
            let pass = |port: u16, net: &Netns, to: SocketAddr| {
                pass((&hub, home(machine.hub_address(), port)), (net, to), &link_faults[n]);
            };
            let through = if n == BEHIND_GATEWAY { GATEWAYS[gateways - 1] } else { GATEWAYS[0] };
            if n == BEHIND_GATEWAY || n == GATEWAYS[1] {
                pass(GATEWAY_PORT, &hub, home(machines[through].address(), GATEWAY_PORT));
            } else {
                pass(postgres.port(), &host, home(Ipv4Addr::LOCALHOST, postgres.port()));
                pass(s3.port(), &host, home(Ipv4Addr::LOCALHOST, s3.port()));
            }
        }
        let node = |name: &'static str| Node {
            name,
            at: dir.path().join(name),
            daemon: Mutex::default(),
            is_away: AtomicBool::new(true),
            is_to_be_offline: Mutex::new(false),
            kills: AtomicU64::new(0),
        };
        let cluster = Self {
            ledger: Mutex::new(Ledger::new(NODES.len(), &dir.path().join("story"))),
            counts: counts.clone(),
            wrong: Mutex::default(),
            nodes: NODES.map(node).into(),
            machines,
            link_faults,
            postgres_port: postgres.port(),
            postgres: Mutex::new(postgres),
            s3_port: s3.port(),
            s3: Mutex::new(s3),
            gateways: (0..gateways).map(|_| Mutex::default()).collect(),
            dir,
        };
        cluster.begin();
        Some(cluster)
    }

    fn begin(&self) {
        let bucket = "s3://bucket/team";
        run(self.on_host(&["create", "--data", bucket]).arg("team")).ok();
        self.start_gateway(0);
        for gate in 1..self.gateways.len() {
            self.join(GATEWAYS[gate], GATEWAY_NAMES[gate], gate - 1, "gateway");
            self.start_gateway(gate);
        }
        self.join(BEHIND_GATEWAY, NODES[BEHIND_GATEWAY], self.gateways.len() - 1, "write");
        for (n, node) in self.nodes.iter().enumerate() {
            fs::create_dir(node.at()).expect("mkdir");
            self.mount(n);
        }
        fs::create_dir(self.nodes[0].work()).expect("mkdir");
        let come = || self.nodes.iter().all(|node| node.work().exists());
        assert!(within(START_TIMEOUT, come), "a directory does not come to all");
    }

    /// Makes a machine a node of a gateway.
    fn join(&self, machine: usize, name: &str, gate: usize, role: &str) {
        let mut invite = binary::command(&["volume", "invite", "team", "--role", role, "--registry"]);
        let token = run(invite.arg(self.registry(gate))).ok();
        let mut join = binary::command(&["volume", "join", "--node", name, token.trim()]);
        join.env("HOME", self.path(&format!("home-{name}"))).env_remove("XDG_CONFIG_HOME");
        self.machines[machine].net().within(|| run(&mut join)).ok();
    }

    fn registry(&self, gate: usize) -> PathBuf {
        self.path(&format!("registry-{}", GATEWAY_NAMES[gate]))
    }

    /// Reports whether this cluster uses a machine.
    pub fn has(&self, machine: usize) -> bool {
        machine < GATEWAYS[0] + self.gateways.len()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns a `shunt volume` command on a machine, or on that of the servers.
    fn command(&self, words: &[&str], machine: Option<usize>) -> Command {
        let mut command = binary::command(&["volume"]);
        let ip = machine.map_or(Ipv4Addr::LOCALHOST, |n| self.machines[n].hub_address());
        let name = |n: usize| NODES.get(n).copied().unwrap_or_else(|| GATEWAY_NAMES[n - GATEWAYS[0]]);
        let home = self.path(&format!("home-{}", machine.map_or("host", name)));
        for variable in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "SHUNT_VOLUME_META"] {
            command.env_remove(variable);
        }
        command.args(words).env("HOME", home).env("AWS_REGION", "us-east-1");
        command.env("AWS_ENDPOINT_URL", format!("http://{ip}:{}", self.s3_port));
        command.env("AWS_ACCESS_KEY_ID", S3::KEYS.0).env("AWS_SECRET_ACCESS_KEY", S3::KEYS.1);
        if machine != Some(BEHIND_GATEWAY) && machine != Some(GATEWAYS[1]) {
            let port = self.postgres_port;
            command.args(["--meta", &format!("postgres://postgres@{ip}:{port}/postgres?sslmode=prefer")]);
        }
        command
    }

    /// Returns a command with the access data of the stores.
    pub fn on_host(&self, words: &[&str]) -> Command {
        self.command(words, None)
    }

    fn log_path(&self, name: &str) -> PathBuf {
        self.path(&format!("log-{name}"))
    }

    /// Starts a long-running program, with its output in a log.
    fn start(&self, machine: usize, name: &str, command: &mut Command) -> Child {
        let log = File::options().create(true).append(true).open(self.log_path(name)).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        self.machines[machine].net().within(|| command.spawn()).expect("shunt")
    }

    pub fn mount(&self, n: usize) {
        let node = &self.nodes[n];
        let mut command = self.command(&["mount", "--node", node.name], Some(n));
        command.args(CACHE_MODES[n]).arg("--cache").arg(self.path(&format!("cache-{}", node.name)));
        command.arg("team").arg(node.at());
        let mut daemon = self.start(n, node.name, &mut command);
        let is_there = || mounts::count(node.at()) == 1 || !matches!(daemon.try_wait(), Ok(None));
        let in_time = within(START_TIMEOUT, is_there);
        if !in_time || mounts::count(node.at()) != 1 {
            self.note(format!("{} is not mounted: {}", node.name, self.last_words(node.name)));
        }
        *lock(&node.daemon) = Some(daemon);
        node.is_away.store(false, Ordering::SeqCst);
        self.log(format_args!("{} is mounted", node.name));
        // Its user may have changed the wish while it was not running.
        self.write_requested_state(n, &lock(&node.is_to_be_offline));
    }

    pub fn kill(&self, n: usize) {
        let node = &self.nodes[n];
        node.is_away.store(true, Ordering::SeqCst);
        node.kills.fetch_add(1, Ordering::SeqCst);
        self.log(format_args!("{} is killed", node.name));
        if let Some(mut daemon) = lock(&node.daemon).take() {
            if let Ok(Some(status)) = daemon.try_wait() {
                self.note(format!("{} ended by itself: {status}: {}", node.name, self.last_words(node.name)));
            }
            let _ = (daemon.kill(), daemon.wait());
        }
        if !within(START_TIMEOUT, || mounts::count(node.at()) == 0) {
            self.note(format!("the mount of {} stays", node.name));
        }
    }

    /// Sets a node offline or online, as soon as it runs.
    pub fn set_online(&self, n: usize, online: bool) {
        let mut is_to_be_offline = lock(&self.nodes[n].is_to_be_offline);
        *is_to_be_offline = !online;
        self.write_requested_state(n, &is_to_be_offline);
    }

    /// Serialised, because of two concurrent calls either one might be the last.
    fn write_requested_state(&self, n: usize, is_to_be_offline: &MutexGuard<'_, bool>) {
        let node = &self.nodes[n];
        let Some(life) = node.life() else { return };
        let word = if **is_to_be_offline { "offline" } else { "online" };
        self.log(format_args!("{} is switched to {word}", node.name));
        let printed = run_for(20, binary::command(&["volume", word]).arg(node.at()));
        if !printed.success() && node.life() == Some(life) {
            self.note(format!("{} will not be {word}: {printed:?}", node.name));
        }
    }

    /// Starts a gateway, unless it runs.
    pub fn start_gateway(&self, gate: usize) {
        let mut gateway = lock(&self.gateways[gate]);
        let name = GATEWAY_NAMES[gate];
        let client = if gate + 1 == self.gateways.len() { BEHIND_GATEWAY } else { GATEWAYS[gate + 1] };
        let (listen, address) = (
            home(self.machines[GATEWAYS[gate]].address(), GATEWAY_PORT).to_string(),
            home(self.machines[client].hub_address(), GATEWAY_PORT).to_string(),
        );
        let began = within(START_TIMEOUT, || {
            let words = ["serve", "team", "--listen", &listen, "--address", &address];
            let before = self.printed(name).matches("is served at").count();
            let mut command = self.command(&words, Some(GATEWAYS[gate]));
            command.arg("--registry").arg(self.registry(gate));
            let mut child = self.start(GATEWAYS[gate], name, &mut command);
            let served = || self.printed(name).matches("is served at").count() > before;
            // It does not start without its store.
            within(START_TIMEOUT, || served() || !matches!(child.try_wait(), Ok(None)));
            let is_served = served();
            *gateway = Some(child);
            is_served
        });
        if !began {
            self.note(format!("the {name} does not begin: {}", self.last_words(name)));
        }
    }

    pub fn kill_gateway(&self, gate: usize) {
        let name = GATEWAY_NAMES[gate];
        self.log(format_args!("the {name} is killed"));
        if let Some(mut gateway) = lock(&self.gateways[gate]).take() {
            if let Ok(Some(status)) = gateway.try_wait() {
                self.note(format!("the {name} ended by itself: {status}: {}", self.last_words(name)));
            }
            let _ = (gateway.kill(), gateway.wait());
        }
    }

    pub fn cut(&self, n: usize, how: Cut) {
        self.machines[n].cut(how);
        if n < NODES.len() {
            lock(&self.ledger).set_cut(n, true);
            self.log(format_args!("{} is cut off: {how:?}", NODES[n]));
        }
    }

    pub fn mend(&self, n: usize, how: Cut) {
        if n < NODES.len() {
            lock(&self.ledger).set_cut(n, false);
            self.log(format_args!("{} is back", NODES[n]));
        }
        self.machines[n].mend(how);
    }

    pub fn link_faults(&self, n: usize) -> &LinkFaults {
        &self.link_faults[n]
    }

    pub fn postgres(&self) -> MutexGuard<'_, Postgres> {
        lock(&self.postgres)
    }

    pub fn s3(&self) -> MutexGuard<'_, S3> {
        lock(&self.s3)
    }

    pub fn note(&self, what: String) {
        self.log(format_args!("WRONG: {what}"));
        lock(&self.wrong).push(what);
    }

    pub fn log(&self, what: std::fmt::Arguments<'_>) {
        lock(&self.ledger).log(what);
    }

    fn printed(&self, name: &str) -> String {
        fs::read_to_string(self.log_path(name)).unwrap_or_default()
    }

    fn last_words(&self, name: &str) -> String {
        let printed = self.printed(name);
        let lines: Vec<&str> = printed.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    /// Checks that all programs still run, and none has panicked.
    pub fn look_after(&self) {
        for node in &self.nodes {
            let ended =
                lock(&node.daemon).as_mut().is_none_or(|daemon| !matches!(daemon.try_wait(), Ok(None)));
            if ended || mounts::count(node.at()) != 1 {
                self.note(format!("{} ended by itself: {}", node.name, self.last_words(node.name)));
            }
        }
        for name in NODES.into_iter().chain(GATEWAY_NAMES) {
            if let Some(line) = self.printed(name).lines().find(|line| line.contains("panicked")) {
                self.note(format!("{name} panicked: {line}"));
            }
        }
    }

    /// Keeps all files, to investigate a failure.
    fn keep(&mut self) {
        self.dir.disable_cleanup(true);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep();
        }
        for node in &self.nodes {
            if mounts::count(node.at()) > 0 {
                run_for(10, binary::command(&["umount"]).arg(node.at()));
            }
        }
        for child in self.nodes.iter().map(|node| &node.daemon).chain(&self.gateways) {
            if let Some(mut child) = lock(child).take() {
                let _ = (child.kill(), child.wait());
            }
        }
        self.nodes.iter().for_each(|node| mounts::detach(node.at()));
    }
}
