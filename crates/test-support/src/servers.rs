//! Test servers: a PostgreSQL and an S3 server for each test, ended with it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::{User, port};

/// Uid of `nobody`: PostgreSQL refuses to run as root.
const NOBODY: u32 = 65_534;

/// Ends its server and removes its files on drop, and also when the process ends in any other way, because the shell around the
/// server reads from a pipe. Words written to that pipe make it kill the server by a signal, or restart it.
struct Guarded {
    dir: PathBuf,
    shell: Child,
    pipe: Option<ChildStdin>,
}

impl Guarded {
    fn begin(dir: PathBuf, program: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = std::fs::File::create(dir.join("log")).expect("a log");
        let script = r#"dir=$1; shift; "$@" </dev/null & server=$!
            while read -r word; do
                case $word in
                    start) "$@" </dev/null & server=$! ;;
                    *) kill -$word $server; wait $server; server=; echo >ended ;;
                esac
            done
            [ -z "$server" ] || { kill -INT $server; wait $server; }
            rm -rf "$dir""#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&dir)
            .arg(program)
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("sh");
        let pipe = shell.stdin.take();
        Self { dir, shell, pipe }
    }

    fn send_command(&mut self, word: &str) {
        writeln!(self.pipe.as_mut().expect("a pipe"), "{word}").expect("the shell around a server");
    }

    /// Ends the server with a signal, and waits until it has ended.
    fn stop(&mut self, signal: &str) {
        let ended = self.dir.join("ended");
        let _ = std::fs::remove_file(&ended);
        self.send_command(signal);
        wait_until_ready(&format!("the end by {signal}"), &self.dir, || ended.exists());
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.shell.wait();
    }
}

fn wait_until_ready(what: &str, dir: &Path, ready: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ready() {
        let log = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
        assert!(begun.elapsed() < Duration::from_secs(60), "{what} does not come: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Creates a directory that only the shell around the server removes.
fn directory() -> PathBuf {
    TempDir::with_prefix("shunt-server-").expect("a directory").keep()
}

/// An empty PostgreSQL server.
pub struct Postgres {
    dir: PathBuf,
    /// Directory of its programs.
    bin: PathBuf,
    port: u16,
    server: Guarded,
}

impl Postgres {
    /// Starts a server; `None` if none is installed. Unless `durable`, it never waits for a disk.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(durable: bool) -> Option<Self> {
        let bin = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let bin = bin
            .flatten()
            .map(|version| version.path().join("bin"))
            .find(|bin| bin.join("initdb").exists())?;
        let (dir, port) = (directory(), port::reserve());
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).expect("chown");
        }
        let start = || {
            let data = dir.join("data");
            let data = data.to_str().expect("a plain path");
            let made = Command::new(bin.join("initdb"))
                .args([
                    "--no-sync",
                    "--auth=trust",
                    "--username=postgres",
                    "--encoding=UTF8",
                    "--locale=C",
                    "-D",
                    data,
                ])
                .current_dir(&dir)
                .output()
                .expect("initdb");
            assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
            let (port, socket) = (port.to_string(), dir.to_str().expect("a plain path"));
            let durable = if durable { "fsync=on" } else { "fsync=off" };
            let arguments = [
                "-D",
                data,
                "-k",
                socket,
                "-p",
                &port,
                "-h",
                "127.0.0.1",
                "-c",
                durable,
                "-c",
                "max_connections=200",
            ];
            Guarded::begin(dir.clone(), &bin.join("postgres"), &arguments, &[])
        };
        let server = if is_root { User::new(NOBODY).run(start) } else { start() };
        let postgres = Self { dir, bin, port, server };
        postgres.wait_until_ready();
        Some(postgres)
    }

    fn wait_until_ready(&self) {
        let state = self.dir.join("data/postmaster.pid");
        wait_until_ready("postgres", &self.dir, || {
            std::fs::read_to_string(&state)
                .is_ok_and(|state| state.lines().nth(7).is_some_and(|at| at.trim() == "ready"))
        });
    }

    /// Ends it like `pg_ctl stop -m immediate`: without a checkpoint, and without notifying clients.
    ///
    /// # Panics
    /// If it does not end.
    pub fn stop_at_once(&mut self) {
        self.server.stop("QUIT");
    }

    /// Restarts it on the same port, with recovery.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.server.send_command("start");
        self.wait_until_ready();
    }

    /// Returns the address of its database, over a Unix socket.
    pub fn address(&self) -> String {
        let host = self.dir.to_str().expect("a plain path").replace('/', "%2F");
        format!("postgres://postgres@{host}:{}/postgres", self.port)
    }

    /// Returns the address of its database over TCP, where a proxy can be put in between.
    pub fn tcp_address(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Enables TLS.
    ///
    /// # Panics
    /// If that fails.
    pub fn speak_tls(&self, shown: &Certificate) {
        use std::os::unix::fs::PermissionsExt as _;
        let data = self.dir.join("data");
        for (name, text) in [("server.crt", &shown.certificate), ("server.key", &shown.key)] {
            let path = data.join(name);
            std::fs::write(&path, text).expect("write");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).expect("chown");
            }
        }
        let conf = data.join("postgresql.conf");
        let before = std::fs::read_to_string(&conf).expect("read");
        std::fs::write(&conf, before + "\nssl = on\n").expect("write");
        self.read_configuration_again();
    }

    /// Requires this password for TCP connections from now on.
    ///
    /// # Panics
    /// If that fails.
    pub fn ask_for_password(&self, password: &str) {
        let output = Command::new(self.bin.join("psql"))
            .args([&self.address(), "-c", &format!("ALTER ROLE postgres PASSWORD '{password}'")])
            .output()
            .expect("psql");
        assert!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
        let rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        std::fs::write(self.dir.join("data/pg_hba.conf"), rules).expect("write");
        self.read_configuration_again();
    }

    fn read_configuration_again(&self) {
        let state = std::fs::read_to_string(self.dir.join("data/postmaster.pid")).expect("read");
        let pid = state.lines().next().and_then(|pid| pid.trim().parse().ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("kill");
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// An S3 server with one bucket, `bucket`.
pub struct S3 {
    dir: PathBuf,
    port: u16,
    speaks_tls: bool,
    server: Guarded,
}

impl S3 {
    /// User name and password of the administrator.
    pub const KEYS: (&str, &str) = ("tester", "tester-secret");

    /// Starts a server; `None` if none is installed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// Starts a server that speaks TLS; `None` if none is installed.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_tls(shown: &Certificate) -> Option<Self> {
        Self::start_with(Some(shown))
    }

    fn start_with(shown: Option<&Certificate>) -> Option<Self> {
        let program = crate::tools::tool("versitygw")?;
        let (dir, port) = (directory(), port::reserve());
        std::fs::create_dir_all(dir.join("data/bucket")).expect("a bucket");
        let address = format!("127.0.0.1:{port}");
        let path = |name: &str| dir.join(name).to_str().expect("a plain path").to_owned();
        let (certificate, key) = (path("server.crt"), path("server.key"));
        let mut arguments = vec!["--port", &address, "--quiet"];
        if let Some(shown) = shown {
            std::fs::write(&certificate, &shown.certificate).expect("write");
            std::fs::write(&key, &shown.key).expect("write");
            arguments.extend(["--cert", &certificate, "--key", &key]);
        }
        arguments.extend(["posix", "data"]);
        let keys = [("ROOT_ACCESS_KEY", Self::KEYS.0), ("ROOT_SECRET_KEY", Self::KEYS.1)];
        let server = Guarded::begin(dir.clone(), &program, &arguments, &keys);
        let s3 = Self { dir, port, speaks_tls: shown.is_some(), server };
        s3.wait_until_ready();
        Some(s3)
    }

    fn wait_until_ready(&self) {
        wait_until_ready("versitygw", &self.dir, || {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
        });
    }

    /// Kills it with SIGKILL.
    ///
    /// # Panics
    /// If it does not end.
    pub fn kill(&mut self) {
        self.server.stop("KILL");
    }

    /// Restarts it on the same port, with its stored objects.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.server.send_command("start");
        self.wait_until_ready();
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the value for `AWS_ENDPOINT_URL`.
    pub fn endpoint(&self) -> String {
        let scheme = if self.speaks_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    /// Returns the directory that holds the objects of the bucket as files.
    pub fn bucket(&self) -> PathBuf {
        self.dir.join("data/bucket")
    }
}
