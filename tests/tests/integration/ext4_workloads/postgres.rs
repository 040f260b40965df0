//! PostgreSQL with page checksums.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use shunt_test_support::{needs_mount, requirement, run_for};
use shunt_tests::line_process::LineProcess;
use shunt_tests::mounts;

use crate::ext4_workloads::databases::{Database, TestRun, long, survives};

/// Number of clients that insert, update and delete; each has its own table, and all share one.
const CLIENTS: usize = 3;

/// Returns Debian's directory of internal server programs, of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.filter_map(|version| Some(version.ok()?.path().join("bin"))).max()
}

struct Postgres {
    programs: PathBuf,
}

impl Postgres {
    /// Returns the command for a program of PostgreSQL, which must not run as root.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
            .arg(self.programs.join(name));
        command.env("LC_ALL", "C").env("PGUSER", "postgres").env("PGDATABASE", "postgres").current_dir("/");
        command
    }

    fn ask(&self, at: &Path, what: &str) -> String {
        run_for(
            120,
            self.program("psql").args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-h"]).arg(at).args(["-c", what]),
        )
        .ok()
    }

    fn control(&self, at: &Path, what: &[&str]) {
        let mut command = self.program("pg_ctl");
        command.arg("-D").arg(at.join("data")).arg("-l").arg(at.join("log")).args(what);
        let ran = run_for(120, &mut command);
        // The end of the server's log contains the reason.
        let log = std::fs::read(at.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let output: Vec<&str> = log.lines().rev().take(40).collect();
        assert!(ran.success(), "{ran:#?}\n{}", output.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }

    /// The socket is on the mount as well.
    fn start(&self, at: &Path) {
        self.control(at, &["-w", "-o", &format!("-k {}", at.display()), "start"]);
    }
}

impl Database for Postgres {
    fn make(&self, at: &Path) {
        run_for(20, Command::new("chown").arg("postgres:postgres").arg(at)).ok();
        let mut init = self.program("initdb");
        init.args(["-k", "-A", "trust", "--wal-segsize=1", "--no-locale", "-D"]).arg(at.join("data"));
        run_for(120, &mut init).ok();
        let config = "listen_addresses = ''\nshared_buffers = 1MB\nmax_connections = 20\nmin_wal_size = 2MB\n\
                      max_wal_size = 4MB\ncheckpoint_timeout = 30\nautovacuum_naptime = 2\nwal_recycle = off\n\
                      bgwriter_delay = 20\n";
        let path = at.join("data/postgresql.auto.conf");
        std::fs::write(path, config).unwrap();
        self.start(at);
        let tables = (0..CLIENTS).map(|client| {
            format!("CREATE TABLE t{client}(id bigint PRIMARY KEY, body text); CREATE INDEX ON t{client}(md5(body));")
        });
        let shared = "CREATE TABLE total(client int PRIMARY KEY, last bigint, rest text);
                      INSERT INTO total SELECT n, 0, '' FROM generate_series(0, 99) n; CREATE EXTENSION amcheck;";
        self.ask(at, &format!("{}{shared}", tables.collect::<String>()));
    }

    fn clients(&self) -> usize {
        CLIENTS
    }

    fn work(&self, at: &Path, client: usize, stop: &AtomicBool, done: &dyn Fn(u64)) {
        if client == 0 {
            self.start(at);
        }
        // The socket exists before the server accepts clients.
        let up = || run_for(20, self.program("pg_isready").arg("-q").arg("-h").arg(at)).success();
        assert!(shunt_test_support::cmd::within(std::time::Duration::from_secs(30), up));
        let mut command = self.program("psql");
        let mut session = LineProcess::start(command.args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-h"]).arg(at));
        for number in 1.. {
            let text = format!(
                "BEGIN; INSERT INTO t{client} SELECT {number}, string_agg(md5(random()::text), '') \
                 FROM generate_series(1, {}); DELETE FROM t{client} WHERE id = {number} - 200; \
                 UPDATE total SET last = {number}, rest = repeat('x', {}) WHERE client = {client}; \
                 UPDATE total SET rest = rest || 'y' WHERE client = 10 + {}; COMMIT; {} SELECT {number};",
                1 + number * 7919 % 150,
                number % 500,
                number % 80,
                if number % 300 == 299 { "CHECKPOINT;" } else { "" },
            );
            let reply = session.ask(&text);
            if reply.is_none_or(|reply| reply != number.to_string()) || stop.load(Ordering::SeqCst) {
                break;
            }
            done(number);
        }
    }

    fn check(&self, at: &Path) -> Vec<u64> {
        // They name the server before the power cut, which is still running: the cut happened in this copy only.
        for lock in ["data/postmaster.pid", ".s.PGSQL.5432.lock"] {
            let _ = std::fs::remove_file(at.join(lock));
        }
        self.start(at);
        let mut check = self.program("pg_amcheck");
        run_for(120, check.args(["--heapallindexed", "--parent-check", "-h"]).arg(at).arg("postgres")).ok();
        run_for(120, self.program("pg_dumpall").arg("-h").arg(at).args(["--no-sync", "-f", "/dev/null"]))
            .ok();
        let there = |client| {
            let what = format!(
                "SELECT last, (SELECT coalesce(max(id), 0) FROM t{client}), (SELECT count(*) FROM t{client})
                 FROM total WHERE client = {client}"
            );
            let output = self.ask(at, &what);
            let output: Vec<u64> = output.trim().split('|').map(|number| number.parse().unwrap()).collect();
            assert_eq!(output[0], output[1], "{output:?}");
            assert_eq!(output[2], output[0].min(200), "{output:?}");
            output[0]
        };
        let there = (0..CLIENTS).map(there).collect();
        self.control(at, &["-w", "-m", "fast", "stop"]);
        run_for(120, self.program("pg_checksums").args(["--check", "-D"]).arg(at.join("data"))).ok();
        there
    }

    fn leave(&self, at: &Path) {
        if at.join("data/postmaster.pid").exists() && !std::thread::panicking() {
            self.control(at, &["-w", "-m", "fast", "stop"]);
        }
        // A server whose mount was removed, or that no test waits for.
        for pid in mounts::processes_naming(&at.join("data")) {
            mounts::signal(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
#[ignore = "long, and needs postgresql: make soak"]
fn postgresql_survives_power_cuts() {
    needs_mount!();
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    let programs = programs();
    requirement!(programs.is_some(), "no PostgreSQL");
    let base = Postgres { programs: programs.unwrap() };
    let seed = u64::from(std::process::id());
    let kinds: [&[&str]; 2] = [&["-b", "4096", "-J", "size=8"], &["-b", "1024", "-O", "orphan_file"]];
    for (n, mkfs) in kinds.into_iter().enumerate() {
        let course = TestRun { time: long() / 2, mkfs, mebibytes: 256, seed: seed + n as u64 };
        assert!(survives(&base, &course) > 0);
    }
}
