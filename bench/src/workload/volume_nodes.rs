//! Replication of small files from one node to another, through PostgreSQL and S3.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use shunt_test_support::servers::{Postgres, S3};
use shunt_volume::object::Kind;
use shunt_volume::replica::{ROOT, Replica};
use shunt_volume::store::{MetaStore, PostgresStore};
use tokio_postgres::NoTls;

use super::Workload;
use crate::context::{Bench, Medium};
use crate::engine::{self, Node};
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume-nodes",
    about: "small files created on one node until another node has them all, through durable PostgreSQL and S3",
    run,
};

const SHUNT: &str = "shunt";
const ROWS: &str = "rows";
/// Threshold: files per second until both nodes are equal.
const MIN_FILES_PER_SECOND: f64 = 3000.0;
/// Bytes per file: too large to be stored inline with the metadata.
const FILE_BYTES: usize = 1024;
/// Files per directory.
const FILES_PER_DIRECTORY: u32 = 1000;
/// Rows per statement of the baseline.
const ROWS_PER_STATEMENT: u32 = 1000;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let count = bench.files(100_000, 2_000);
    let mut row = Row::new(WORKLOAD.name, "until-both-equal", Unit::PerSecond);
    let mut made = Row::new(WORKLOAD.name, "made-here", Unit::PerSecond);
    for round in 0..bench.rounds(1) {
        job::check()?;
        say(format_args!("{}: round {}, {count} files", WORKLOAD.name, round + 1));
        let Some(database) = Postgres::start(true) else {
            bail!("PostgreSQL is not installed; run tests/setup")
        };
        let Some(server) = S3::start() else { bail!("versitygw is not installed; run tests/setup") };
        record(&mut row, ROWS, count, rows(&database.address(), count)?);
        let (here, there) = nodes(bench, &database, &server, count)?;
        record(&mut made, SHUNT, count, here);
        record(&mut row, SHUNT, count, there);
    }
    row.notes.push(format!(
        "`rows`: the same number of names with {FILE_BYTES} bytes each as plain rows of the same server, {ROWS_PER_STATEMENT} per statement"
    ));
    row.finish(&bench.round_trips);
    row.reaches(SHUNT, MIN_FILES_PER_SECOND);
    made.finish(&bench.round_trips);
    Ok(vec![row, made])
}

fn record(row: &mut Row, peer: &str, count: u32, seconds: f64) {
    row.record(peer, Ok(Sample { value: f64::from(count) / seconds, seconds, requests: None }));
}

/// Seconds to insert plain rows: the upper bound of any design with a row per file name in this database.
fn rows(address: &str, count: u32) -> Result<f64> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(1).build()?;
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
        tokio::spawn(connection);
        client.batch_execute("CREATE TABLE plain (name TEXT PRIMARY KEY, body BYTEA NOT NULL)").await?;
        let body = engine::noise(3, 128);
        let insert = "INSERT INTO plain SELECT name, $2 FROM unnest($1::TEXT[]) AS w (name)";
        let insert = client.prepare(insert).await?;
        let start = Instant::now();
        for first in (0..count).step_by(ROWS_PER_STATEMENT as usize) {
            let names: Vec<String> = (first..count.min(first + ROWS_PER_STATEMENT))
                .map(|n| format!("{:04}/file{n:06}", n / FILES_PER_DIRECTORY))
                .collect();
            client.execute(&insert, &[&names, &body]).await?;
        }
        Ok(start.elapsed().as_secs_f64())
    })
}

/// Seconds to make the files on one node, and from then on until both nodes are equal.
fn nodes(bench: &Bench, database: &Postgres, server: &S3, count: u32) -> Result<(f64, f64)> {
    let home = tempfile::tempdir_in(bench.source_dir(Medium::Disk))?;
    let name = "bench".parse().ok().context("invalid volume name")?;
    let meta = |store: PostgresStore| -> Arc<dyn MetaStore> { Arc::new(store) };
    let one_meta = meta(PostgresStore::create(&database.address(), &name, &engine::root(), b"")?);
    let other_meta = meta(PostgresStore::open(&database.address(), &name)?);
    let (one_contents, other_contents) = (engine::contents(server)?, engine::contents(server)?);
    let mut one = Node::open(&home.path().join("one"), "one", &one_meta, &one_contents)?;
    let mut other = Node::open(&home.path().join("other"), "other", &other_meta, &other_contents)?;
    let start = Instant::now();
    let mut directory = ROOT;
    for n in 0..count {
        if n % FILES_PER_DIRECTORY == 0 {
            job::check()?;
            let name = format!("{:04}", n / FILES_PER_DIRECTORY);
            directory = one.replica.make(ROOT, name.as_bytes(), engine::new(Kind::Directory))?.ino;
        }
        one.write(directory, &format!("file{n:06}"), &engine::noise(n.into(), FILE_BYTES))?;
    }
    let here = start.elapsed().as_secs_f64();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| one.sync_until_idle());
        // Meanwhile the second node receives.
        while !sent.is_finished() {
            other.sync_until_idle()?;
            other_meta.wait(other.replica.cursor()?, std::time::Duration::from_millis(100))?;
        }
        sent.join().ok().context("a worker thread panicked")??;
        other.sync_until_idle()
    })?;
    let there = start.elapsed().as_secs_f64();
    ensure!(tree(&one.replica)? == tree(&other.replica)?, "the nodes show different trees");
    Ok((here, there))
}

/// The names of the tree with their visible attributes, in order.
fn tree(replica: &Replica) -> Result<Vec<(Vec<u8>, u64, i64)>> {
    let mut all = Vec::new();
    for directory in replica.list(ROOT, b"", usize::MAX >> 1)? {
        for file in replica.list(directory.inode.ino, b"", usize::MAX >> 1)? {
            all.push((
                [&directory.name[..], b"/", &file.name].concat(),
                file.inode.size,
                file.inode.modified.0,
            ));
        }
    }
    Ok(all)
}
