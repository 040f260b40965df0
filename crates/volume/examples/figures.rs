//! How fast the stores of a volume are: `cargo run --release -p shunt-volume --example figures [commits|contents|s3]`.
//!
//! SQLite and the directory are in `TMPDIR`. PostgreSQL and the S3 server are started, durable, where they are installed.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::{ObjectStoreExt as _, PutPayload};
use shunt_test_support::servers::{Postgres, S3};
use shunt_volume::chunks::{BasisSource, Blobs, ChunkKeys, ContentStore};
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time};
use shunt_volume::store::{MetaStore, Mutation, PostgresStore, SqliteStore, Transaction};

#[path = "../tests/integration/common/faulty_object_store.rs"]
#[allow(dead_code, reason = "the example injects no network faults")]
mod faulty_object_store;

use faulty_object_store::FaultyObjectStore;

const MIB: usize = 1 << 20;

fn object(id: u128, kind: Kind) -> Object {
    Object {
        id: ObjectId(id),
        kind,
        mode: 0o644,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    }
}

fn commits(what: &str, store: &dyn MetaStore) {
    for (batch, seconds) in [(1, 3.0), (64, 5.0)] {
        let (begun, mut done) = (Instant::now(), 0u64);
        while begun.elapsed().as_secs_f64() < seconds {
            let items: Vec<Transaction> = (0..batch)
                .map(|_| {
                    let id = rand::random();
                    let at = LinkName { parent: ObjectId::ROOT, name: format!("{id:032x}").into_bytes() };
                    let change =
                        vec![Mutation::Make(object(id, Kind::Regular)), Mutation::Link(at, ObjectId(id))];
                    Transaction { mutations: change, ..Transaction::default() }
                })
                .collect();
            let answers = store.commit(&"n".parse().unwrap(), rand::random(), &items).unwrap();
            assert!(answers.iter().all(Result::is_ok));
            done += batch;
        }
        println!(
            "create in {what}, {batch} files per batch: {:.0} files/s",
            done as f64 / begun.elapsed().as_secs_f64()
        );
    }
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

fn rate(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / MIB as f64 / begun.elapsed().as_secs_f64()
}

fn send(
    store: &ContentStore,
    meta: &dyn MetaStore,
    bytes: &[u8],
    before: Option<&Content>,
) -> (Content, u64) {
    let mut upload = store.upload(meta);
    let content = upload.put(bytes, bytes.len() as u64, before).unwrap();
    let sent = upload.finish().unwrap();
    let item = Transaction { chunks: sent.chunks, ..Transaction::default() };
    meta.commit(&"n".parse().unwrap(), rand::random(), &[item]).unwrap();
    (content, sent.bytes)
}

/// Prints what a node receives that had the file before it was edited.
fn received(dir: &Path, store: &ContentStore, meta: &dyn MetaStore, before: &Content, edited: &Content) {
    let objects = Arc::new(FaultyObjectStore::over(store.blobs().objects()));
    let store = ContentStore::new(Blobs::over(objects.clone()), ChunkKeys::open([1; 32]));
    let (old, new) = (tempfile::tempfile_in(dir).unwrap(), tempfile::tempfile_in(dir).unwrap());
    store.fetch_file(meta, before, &old, &|_| ()).unwrap();
    new.set_len(edited.size).unwrap();
    let had = objects.fetched_bytes.load(Ordering::Relaxed);
    let begun = Instant::now();
    let local = BasisSource::new(Arc::new(old), &store.segments(meta, before).unwrap());
    let pieces = store.segments(meta, edited).unwrap();
    store.fetch(meta, &pieces, 0..edited.size, &new, Some(&local), &|_| ()).unwrap();
    let (received, rate) =
        (objects.fetched_bytes.load(Ordering::Relaxed) - had, rate(edited.size as usize, begun));
    println!(
        "fetch of the edit by a node with the old version: {received} bytes received, rebuilt at {rate:.0} MiB/s"
    );
}

fn contents(dir: &Path, meta: &dyn MetaStore, bytes: &mut [u8]) {
    let store = ContentStore::new(Blobs::directory(dir).unwrap(), ChunkKeys::open([1; 32]));
    let length = bytes.len();
    let begun = Instant::now();
    let (content, sent) = send(&store, meta, bytes, None);
    println!("upload of 1 GiB to a directory: {:.0} MiB/s, {} MiB stored", rate(length, begun), sent >> 20);
    let begun = Instant::now();
    bytes[500 * MIB + 5..][..4096].copy_from_slice(&noise(77, 4096));
    let (edited, sent) = send(&store, meta, bytes, Some(&content));
    println!(
        "upload after an edit of 4 KiB in it: {} bytes sent, compared at {:.0} MiB/s",
        sent,
        rate(length, begun)
    );
    received(dir, &store, meta, &content, &edited);
    let begun = Instant::now();
    let file = tempfile::tempfile_in(dir).unwrap();
    store.fetch_file(meta, &edited, &file, &|_| ()).unwrap();
    println!("fetch of 1 GiB from the directory: {:.0} MiB/s", rate(length, begun));
    let small: Vec<_> = (0..20_000).map(|n| noise(n, 4096)).collect();
    let begun = Instant::now();
    let mut upload = store.upload(meta);
    for file in &small {
        upload.put(&file[..], 4096, None).unwrap();
    }
    let sent = upload.finish().unwrap();
    let each = small.len() as f64 / begun.elapsed().as_secs_f64();
    println!("upload of 20,000 files of 4 KiB to a directory: {each:.0} files/s, {} MiB", sent.bytes >> 20);
}

fn s3(server: &S3, dir: &Path, meta: &dyn MetaStore, bytes: &[u8]) {
    let builder = || {
        AmazonS3Builder::new()
            .with_endpoint(server.endpoint())
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name("bucket")
            .with_access_key_id(S3::KEYS.0)
            .with_secret_access_key(S3::KEYS.1)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let plain = builder().build().unwrap();
    let store = ContentStore::new(Blobs::over_s3(builder(), "v").unwrap(), ChunkKeys::open([1; 32]));
    let begun = Instant::now();
    let (content, _) = send(&store, meta, bytes, None);
    println!("upload of 1 GiB to S3: {:.0} MiB/s", rate(bytes.len(), begun));
    let parts: Vec<_> = bytes.chunks(8 * MIB).map(<[u8]>::to_vec).collect();
    let key = |n: usize| object_store::path::Path::from(format!("plain/{n}"));
    runtime.block_on(async {
        for (n, part) in parts.into_iter().enumerate() {
            plain.put(&key(n), PutPayload::from(part)).await.unwrap();
        }
    });
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let file = tempfile::tempfile_in(dir).unwrap();
        let begun = Instant::now();
        runtime.block_on(async {
            let plain = &plain;
            let get = |n: usize| async move { (n, plain.get(&key(n)).await.unwrap().bytes().await.unwrap()) };
            let mut parts = futures::stream::iter(0..bytes.len() / (8 * MIB)).map(get).buffer_unordered(6);
            while let Some((n, part)) = parts.next().await {
                file.write_all_at(&part, (n * 8 * MIB) as u64).unwrap();
            }
        });
        let plainly = rate(bytes.len(), begun);
        let file = tempfile::tempfile_in(dir).unwrap();
        let begun = Instant::now();
        store.fetch_file(meta, &content, &file, &|_| ()).unwrap();
        let ours = rate(bytes.len(), begun);
        println!("fetch of 1 GiB from S3: {ours:.0} MiB/s, with object_store alone: {plainly:.0} MiB/s");
        ratios.push(ours / plainly);
    }
    ratios.sort_by(f64::total_cmp);
    println!("ratio, median of three runs: {:.2}", ratios[1]);
}

fn main() {
    let wanted = std::env::args().nth(1);
    let wants = |what: &str| wanted.as_deref().is_none_or(|wanted| wanted == what);
    let dir = tempfile::tempdir().unwrap();
    let (name, root) = ("v".parse().unwrap(), object(1, Kind::Directory));
    if wants("commits") {
        let meta = SqliteStore::create(&dir.path().join("meta.db"), &name, &root, b"").unwrap();
        commits("SQLite", &meta);
        if let Some(server) = Postgres::start(true) {
            let store = PostgresStore::create(&server.address(), &name, &root, b"").unwrap();
            commits("PostgreSQL", &store);
        }
    }
    // Each with metadata of its own: what one store has need not be sent again, and is not in the other.
    let meta = || SqliteStore::in_memory(&name, &root, b"").unwrap();
    let mut bytes = noise(1, 1024 * MIB);
    if wants("contents") {
        contents(&dir.path().join("data"), &meta(), &mut bytes);
        std::fs::remove_dir_all(dir.path().join("data")).unwrap();
    }
    if wants("s3")
        && let Some(server) = S3::start()
    {
        s3(&server, dir.path(), &meta(), &bytes);
    }
}
