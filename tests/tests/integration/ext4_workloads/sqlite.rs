//! SQLite in each of its journal modes.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shunt_test_support::{needs_mount, needs_tools, requirement, run_for};
use shunt_tests::line_process::LineProcess;

use crate::ext4_workloads::databases::{Database, TestRun, long, survives};

/// One database per client, each with its own journal mode.
const JOURNALS: [&str; 4] = ["wal", "delete", "truncate", "persist"];

struct Sqlite;

fn sqlite(at: &Path, client: usize) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-batch", "-bail"]).arg(at.join(format!("{}.db", JOURNALS[client])));
    command
}

fn ask(at: &Path, client: usize, what: &str) -> String {
    run_for(60, sqlite(at, client).arg(what)).ok()
}

/// Rows are inserted and deleted, so that pages are freed and reused; `count` and `sum` are the expected values.
fn transaction(number: u64) -> String {
    let old = number.saturating_sub(40);
    format!(
        "BEGIN; INSERT INTO t VALUES({number}, hex(randomblob({}))); DELETE FROM t WHERE id = {old}; \
         UPDATE total SET last = {number}, bytes = (SELECT sum(length(body)) FROM t); COMMIT; SELECT {number};",
        100 + number * 7919 % 5000
    )
}

impl Database for Sqlite {
    fn make(&self, at: &Path) {
        for (client, journal) in JOURNALS.iter().enumerate() {
            let schema = "CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT); CREATE INDEX bodies ON t(substr(body, 1, 20));
                 CREATE TABLE total(last INTEGER, bytes INTEGER); INSERT INTO total VALUES(0, NULL);";
            ask(at, client, &format!("PRAGMA journal_mode={journal}; PRAGMA page_size=4096; {schema}"));
        }
    }

    fn clients(&self) -> usize {
        JOURNALS.len()
    }

    fn work(&self, at: &Path, client: usize, stop: &AtomicBool, done: &dyn Fn(u64)) {
        let mut session = LineProcess::start(&mut sqlite(at, client));
        // FULL does not wait for the removal of a journal to be durable, so a power cut may roll the last transaction back.
        let ways = format!(
            "PRAGMA synchronous=EXTRA; PRAGMA wal_autocheckpoint=60; PRAGMA journal_mode={};",
            JOURNALS[client]
        );
        // Replies with the checkpoint setting and the journal mode.
        let ready = session.ask(&ways).is_some() && session.ask("").is_some();
        assert!(ready, "sqlite3 does not answer");
        for number in 1.. {
            let reply = session.ask(&transaction(number));
            if reply.is_none_or(|reply| reply != number.to_string()) || stop.load(Ordering::SeqCst) {
                break;
            }
            done(number);
        }
    }

    fn check(&self, at: &Path) -> Vec<u64> {
        let there = |client| {
            let output = ask(
                at,
                client,
                "PRAGMA integrity_check; SELECT last FROM total; SELECT ifnull(max(id), 0) FROM t;
                 SELECT (SELECT bytes FROM total) IS (SELECT sum(length(body)) FROM t);
                 SELECT count(*) FROM t WHERE id <= (SELECT last FROM total) - 40;
                 INSERT INTO t VALUES(-1, 'goes on'); DELETE FROM t WHERE id = -1;",
            );
            let output: Vec<&str> = output.lines().collect();
            let [ok, last, newest, sums, old] = output[..] else { panic!("{output:?}") };
            assert_eq!((ok, sums, old), ("ok", "1", "0"), "{}: {output:?}", JOURNALS[client]);
            assert_eq!(last, newest);
            last.parse().unwrap()
        };
        (0..JOURNALS.len()).map(there).collect()
    }

    fn leave(&self, _: &Path) {}
}

fn cut(mkfs: &'static [&'static str], seed: u64, time: Duration) {
    needs_mount!();
    needs_tools!("sqlite3");
    requirement!(rustix::process::geteuid().is_root(), "needs root");
    assert!(survives(&Sqlite, &TestRun { time, mkfs, mebibytes: 64, seed }) > 0);
}

#[test]
fn sqlite_survives_power_cuts() {
    cut(&["-b", "4096", "-O", "orphan_file"], 1, Duration::from_secs(6));
}

#[test]
fn sqlite_survives_power_cuts_on_small_blocks() {
    cut(&["-t", "ext3", "-b", "1024"], 2, Duration::from_secs(3));
}

#[test]
#[ignore = "long: make soak"]
fn sqlite_survives_many_power_cuts() {
    let seed = u64::from(std::process::id());
    cut(&["-b", "4096", "-J", "size=4"], seed, long() / 2);
    cut(&["-b", "1024", "-J", "size=1", "-O", "orphan_file"], seed + 1, long() / 2);
}
