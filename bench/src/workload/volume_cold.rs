//! The first read of a file that is only in the store, an S3 server on this machine.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::StreamExt as _;
use object_store::aws::AmazonS3;
use object_store::{ObjectStoreExt as _, PutPayload};
use shunt_test_support::servers::S3;
use shunt_volume::replica::ROOT;
use shunt_volume::store::{MetaStore, SqliteStore};

use super::Workload;
use crate::context::{Bench, Medium};
use crate::engine::{self, Node};
use crate::job;
use crate::model::{Row, Sample, Unit};
use crate::progress::say;

pub const WORKLOAD: Workload = Workload {
    name: "volume-cold",
    about: "first read of a file that is only in S3, compared with a plain download by object_store",
    run,
};

const PLAIN: &str = "object_store";
/// A plain download by ranges of all but the first byte: a server that sends whole objects without copying them copies ranges.
const RANGES: &str = "object_store-ranges";
const SHUNT: &str = "shunt";
const PART_BYTES: usize = 8 << 20;
/// Concurrent requests of the plain download, as many as the volume makes.
const CONCURRENT_REQUESTS: usize = 6;
/// The smallest accepted fraction of the plain download's rate.
const MIN_RATIO: f64 = 0.80;
/// Bytes per read of the client program.
const READ_BYTES: usize = 1 << 20;

fn run(bench: &Bench) -> Result<Vec<Row>> {
    let Some(server) = S3::start() else { bail!("versitygw is not installed; run tests/setup") };
    let home = tempfile::tempdir_in(bench.source_dir(Medium::Disk))?;
    let size: usize = bench.size(1 << 30, 64 << 20);
    let bytes = engine::noise(1, size);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build()?;
    let plain = Arc::new(engine::bucket(&server).build()?);
    runtime.block_on(async {
        for (n, part) in bytes.chunks(PART_BYTES).enumerate() {
            plain.put(&key(n), PutPayload::from(part.to_vec())).await?;
        }
        Ok::<_, anyhow::Error>(())
    })?;
    let meta: Arc<dyn MetaStore> = Arc::new(SqliteStore::in_memory(
        &"bench".parse().ok().context("invalid volume name")?,
        &engine::root(),
        b"",
    )?);
    let contents = engine::contents(&server)?;
    let mut writer = Node::open(&home.path().join("writer"), "writer", &meta, &contents)?;
    writer.write(ROOT, "file", &bytes)?;
    writer.sync_until_idle()?;
    drop((writer, bytes));

    let mut whole = Row::new(WORKLOAD.name, "read-1g", Unit::MebibytesPerSecond);
    let mut first = Row::new(WORKLOAD.name, "first-byte", Unit::Seconds);
    for round in 0..bench.rounds(3) {
        job::check()?;
        say(format_args!("{}: round {}", WORKLOAD.name, round + 1));
        for (peer, by_ranges) in [(PLAIN, false), (RANGES, true)] {
            take_pages(home.path(), size)?;
            let file = Arc::new(tempfile::tempfile_in(home.path())?);
            let start = Instant::now();
            runtime.block_on(download(&plain, size / PART_BYTES, by_ranges, &file))?;
            record(&mut whole, peer, size, start);
        }
        let mut reader = Node::open(&home.path().join("reader"), "reader", &meta, &contents)?;
        reader.sync_until_idle()?;
        let num = reader.replica.lookup(ROOT, b"file")?.ino;
        take_pages(home.path(), size)?;
        let start = Instant::now();
        let opened = reader.replica.open_file(num, false, false)?;
        let mut buffer = vec![0; READ_BYTES];
        for at in (0..size).step_by(READ_BYTES) {
            reader.replica.ensure_present(num, at as u64..(at + READ_BYTES) as u64)?;
            File::read_exact_at(&opened.file, &mut buffer, at as u64)?;
            if at == 0 {
                let seconds = start.elapsed().as_secs_f64();
                first.record(SHUNT, Ok(Sample { value: seconds, seconds, requests: None }));
            }
        }
        record(&mut whole, SHUNT, size, start);
        reader.replica.release_open(num, false, opened.session);
        drop(reader);
        std::fs::remove_dir_all(home.path().join("reader"))?;
    }
    whole.notes.push("the floor is the plain download, with the same request size and parallelism".into());
    whole.notes.push("shunt also verifies the hash of all data, and a program reads it".into());
    for row in [&mut whole, &mut first] {
        row.finish(&bench.round_trips);
    }
    whole.at_least(SHUNT, MIN_RATIO, PLAIN);
    Ok(vec![whole, first])
}

fn key(n: usize) -> object_store::path::Path {
    object_store::path::Path::from(format!("plain/{n}"))
}

/// Downloads objects into a file, with the writes on blocking threads, as the volume does.
async fn download(plain: &Arc<AmazonS3>, objects: usize, by_ranges: bool, file: &Arc<File>) -> Result<()> {
    let get = |n: usize| {
        let (plain, file) = (plain.clone(), file.clone());
        async move {
            let bytes = match by_ranges {
                true => plain.get_range(&key(n), 1..PART_BYTES as u64).await?,
                false => plain.get(&key(n)).await?.bytes().await?,
            };
            let write = move || file.write_all_at(&bytes, (n * PART_BYTES) as u64);
            Ok::<_, anyhow::Error>(tokio::task::spawn_blocking(write).await??)
        }
    };
    let mut parts = futures::stream::iter(0..objects).map(get).buffer_unordered(CONCURRENT_REQUESTS);
    while let Some(part) = parts.next().await {
        part?;
    }
    Ok(())
}

/// Writes a file and drops it, so that a virtual machine's free pages are backed by its host. Pages that the host has reclaimed
/// are faulted in one by one, at the cost of whichever peer ran first.
fn take_pages(home: &Path, size: usize) -> Result<()> {
    let file = tempfile::tempfile_in(home)?;
    let bytes = vec![1; READ_BYTES];
    (0..size).step_by(READ_BYTES).try_for_each(|at| file.write_all_at(&bytes, at as u64))?;
    Ok(())
}

fn record(row: &mut Row, peer: &str, size: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let value = size as f64 / f64::from(1 << 20) / seconds;
    row.record(peer, Ok(Sample { value, seconds, requests: None }));
}
