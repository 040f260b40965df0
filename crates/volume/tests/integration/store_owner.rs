//! Ownership of an object store, and the clocks by which garbage collection determines ages.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use shunt_test_support::servers::{Postgres, S3};
use shunt_volume::address::{DataAddress, MetaAddress};
use shunt_volume::chunks::{Blobs, ContentStore};
use shunt_volume::id::{ObjectId, OwnerId, Seq};
use shunt_volume::maintenance::{Collected, GRACE_PERIOD, MaintenanceError, StoreOwnerError, collect};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time};
use shunt_volume::open::{OpenError, Options, create, open};
use shunt_volume::store::{Mutation, StoreError, Transaction, system_clock};
use shunt_volume::volume::Volume;

const MARKER_KEY: &str = "shunt.volume";
const DAY: Duration = Duration::from_secs(24 * 3600);

fn noise(seed: u8) -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn at(name: &str) -> LinkName {
    LinkName { parent: ObjectId::ROOT, name: name.as_bytes().to_vec() }
}

fn commit(volume: &Volume, item: Transaction) -> Seq {
    let node = "node".parse().unwrap();
    volume.meta.commit(&node, rand::random(), &[item]).unwrap().remove(0).unwrap()
}

/// Uploads bytes that nothing references.
fn send(volume: &Volume, seed: u8) -> (Content, Transaction) {
    let mut upload = volume.content.upload(&*volume.meta);
    let content = upload.put(&noise(seed)[..], 5000, None).unwrap();
    let chunks = upload.finish().unwrap().chunks;
    (content, Transaction { chunks, ..Transaction::default() })
}

fn file(volume: &Volume, seed: u8) -> Content {
    let (content, mut item) = send(volume, seed);
    let id = ObjectId(u128::from(seed));
    let object = Object {
        id,
        kind: Kind::Regular,
        mode: 0o644,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: content.clone(),
        xattrs: Default::default(),
    };
    item.mutations = vec![Mutation::Make(object), Mutation::Link(at(&seed.to_string()), id)];
    commit(volume, item);
    content
}

fn is_there(volume: &Volume, content: &Content, seed: u8) -> bool {
    let read = volume.content.read(&*volume.meta, content, 0..u64::MAX);
    read.is_ok_and(|bytes| bytes == noise(seed))
}

fn free(volume: &Volume, grace: Duration) -> Result<Collected, MaintenanceError> {
    collect(volume, grace, None, &|_, _| ())
}

/// Returns all files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

fn make_old(path: &Path, age: Duration) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
}

struct Places {
    dir: tempfile::TempDir,
}

impl Places {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn meta(&self, name: &str) -> MetaAddress {
        MetaAddress::Sqlite(self.dir.path().join(name))
    }

    fn make(&self, name: &str) -> Result<Volume, OpenError> {
        let options = Options { data: DataAddress::Directory(self.data()), ..Options::default() };
        create(&self.meta(name), &"v".parse().unwrap(), &options)
    }

    /// Creates a volume as an older version did, without an ownership marker.
    fn make_unmarked(&self, name: &str) -> Volume {
        let volume = self.make(name).unwrap();
        fs::remove_file(self.data().join(MARKER_KEY)).unwrap();
        volume
    }

    fn packs(&self) -> Vec<PathBuf> {
        files(&self.data().join("packs"))
    }

    /// Opens the volume with a copy of its current metadata.
    fn copied(&self, name: &str) -> Volume {
        let (from, to) = (self.dir.path().join(name), self.dir.path().join("copy"));
        fs::create_dir(&to).unwrap();
        for file in files(&from) {
            fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
        }
        open(&self.meta("copy"), &"v".parse().unwrap(), None).unwrap()
    }
}

#[test]
fn no_two_volumes_are_made_in_a_place() {
    let places = Places::new();
    let first = places.make("first").unwrap();
    let mark = fs::read(places.data().join(MARKER_KEY)).unwrap();
    let refused = places.make("second").unwrap_err();
    assert!(matches!(refused, OpenError::StoreOwner(StoreOwnerError::Taken(_))), "{refused}");
    assert!(refused.to_string().contains(places.data().to_str().unwrap()), "{refused}");
    // Creating the first volume again fails because it exists.
    assert!(matches!(places.make("first"), Err(OpenError::Store(StoreError::Exists(_)))));
    assert_eq!(fs::read(places.data().join(MARKER_KEY)).unwrap(), mark);
    // Created by an older version.
    file(&first, 2);
    fs::remove_file(places.data().join(MARKER_KEY)).unwrap();
    let refused = places.make("second").unwrap_err();
    assert!(matches!(refused, OpenError::StoreOwner(StoreOwnerError::Unmarked(_))), "{refused}");
    assert!(!places.dir.path().join("second").exists());
    assert!(!places.data().join(MARKER_KEY).exists());
}

#[test]
fn a_volume_that_was_not_made_leaves_its_place() {
    let places = Places::new();
    fs::write(places.dir.path().join("first"), b"no directory").unwrap();
    assert!(matches!(places.make("first"), Err(OpenError::Store(_))));
    assert!(!places.data().join(MARKER_KEY).exists());
    places.make("second").unwrap();
}

#[test]
fn contents_of_another_volume_in_the_same_place_are_spared() {
    let places = Places::new();
    let (one, other) = (places.make_unmarked("one"), places.make_unmarked("other"));
    let (ours, theirs) = (file(&one, 2), file(&other, 3));
    send(&one, 4);
    places.packs().iter().for_each(|pack| make_old(pack, DAY * 3));
    // The marker is new, so unknown packs are spared at first.
    assert_eq!(free(&one, GRACE_PERIOD).unwrap().packs, 0);
    let refused = free(&other, GRACE_PERIOD).unwrap_err();
    assert!(matches!(refused, MaintenanceError::StoreOwner(StoreOwnerError::Foreign(_))), "{refused}");
    make_old(&places.data().join(MARKER_KEY), DAY * 2);
    assert_eq!(free(&one, GRACE_PERIOD).unwrap().packs, 1, "what one sent for nothing");
    assert!(is_there(&one, &ours, 2) && is_there(&other, &theirs, 3));
    // The refused volume changes nothing.
    let settled = places.packs();
    let (_, condemned) = send(&other, 5);
    commit(&other, condemned);
    assert!(free(&other, Duration::ZERO).is_err());
    assert_eq!(places.packs().len(), settled.len() + 1);
    assert!(
        other
            .admin()
            .unwrap()
            .scan_chunks(shunt_volume::object::ChunkId([0; 32]), 9)
            .unwrap()
            .iter()
            .all(|(_, chunk)| chunk.marked_at.is_none())
    );
}

#[test]
fn an_older_copy_of_the_metadata_frees_nothing() {
    let places = Places::new();
    let volume = places.make("volume").unwrap();
    file(&volume, 2);
    let copy = places.copied("volume");
    let late = file(&volume, 3);
    free(&volume, GRACE_PERIOD).unwrap();
    places.packs().iter().for_each(|pack| make_old(pack, DAY * 3));
    make_old(&places.data().join(MARKER_KEY), DAY * 4);
    let refused = free(&copy, GRACE_PERIOD).unwrap_err();
    assert!(
        matches!(
            refused,
            MaintenanceError::StoreOwner(StoreOwnerError::Behind { seen: Seq(2), head: Seq(1), .. })
        ),
        "{refused}"
    );
    assert!(is_there(&volume, &late, 3));
    free(&volume, GRACE_PERIOD).unwrap();
}

/// Also for a volume that was created after the last garbage collection.
#[test]
fn metadata_that_stood_still_while_packs_came_spare_these() {
    let places = Places::new();
    let volume = places.make("volume").unwrap();
    file(&volume, 2);
    send(&volume, 9);
    free(&volume, GRACE_PERIOD).unwrap();
    places.packs().iter().for_each(|pack| make_old(pack, DAY * 5));
    make_old(&places.data().join(MARKER_KEY), DAY * 9);
    let copy = places.copied("volume");
    let db = rusqlite::Connection::open(places.dir.path().join("copy/meta.db")).unwrap();
    let four_days = 4 * DAY.as_nanos() as i64;
    assert_eq!(db.execute("UPDATE log SET at = at - ?", [four_days]).unwrap(), 1);
    let before = places.packs();
    let late: Vec<_> = (3..6).map(|seed| file(&volume, seed)).collect();
    let packs: Vec<_> = places.packs().into_iter().filter(|pack| !before.contains(pack)).collect();
    packs.iter().zip([DAY * 3, DAY * 2, DAY / 2]).for_each(|(pack, age)| make_old(pack, age + DAY / 4));
    // Chunks uploaded before its last commit and never referenced are freed nevertheless.
    assert_eq!(free(&copy, GRACE_PERIOD).unwrap().packs, 1);
    late.iter().zip(3..6).for_each(|(content, seed)| assert!(is_there(&volume, content, seed)));
}

/// An object store whose clock is behind.
#[derive(Debug)]
struct SkewedClockStore {
    store: LocalFileSystem,
    behind: Duration,
}

impl SkewedClockStore {
    fn shifted(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified -= self.behind;
        meta
    }
}

impl std::fmt::Display for SkewedClockStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for SkewedClockStore {
    async fn put_opts(
        &self,
        at: &Key,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.store.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        _at: &Key,
        _options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        unimplemented!("objects are put as a whole")
    }

    async fn get_opts(&self, at: &Key, options: GetOptions) -> object_store::Result<GetResult> {
        let got = self.store.get_opts(at, options).await?;
        let meta = self.shifted(got.meta.clone());
        Ok(GetResult { meta, ..got })
    }

    fn delete_stream(
        &self,
        these: BoxStream<'static, object_store::Result<Key>>,
    ) -> BoxStream<'static, object_store::Result<Key>> {
        self.store.delete_stream(these)
    }

    fn list(&self, below: Option<&Key>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let behind = self.behind;
        let shifted =
            move |meta: ObjectMeta| ObjectMeta { last_modified: meta.last_modified - behind, ..meta };
        self.store.list(below).map(move |meta| meta.map(shifted)).boxed()
    }

    async fn list_with_delimiter(&self, below: Option<&Key>) -> object_store::Result<ListResult> {
        self.store.list_with_delimiter(below).await
    }

    async fn copy_opts(&self, _from: &Key, _to: &Key, _options: CopyOptions) -> object_store::Result<()> {
        unimplemented!("nobody copies objects")
    }
}

#[test]
fn clock_skew_prevents_collection() {
    let places = Places::new();
    let mut volume = places.make("volume").unwrap();
    let (content, item) = send(&volume, 2);
    commit(&volume, item);
    free(&volume, GRACE_PERIOD).unwrap();
    send(&volume, 3);
    let keys = || volume.described.keys(None).unwrap();
    let by_clock = |behind: Duration| {
        let store = LocalFileSystem::new_with_prefix(places.data()).unwrap();
        ContentStore::new(Blobs::over(Arc::new(SkewedClockStore { store, behind })), keys())
    };
    let (wrong, right) = (by_clock(DAY * 2), by_clock(Duration::from_secs(300)));
    volume.content = wrong;
    for grace in [GRACE_PERIOD, Duration::ZERO] {
        let refused = free(&volume, grace).unwrap_err();
        assert!(
            matches!(refused, MaintenanceError::Clock { whose: "the contents", minutes: 2878..=2880 }),
            "{refused}"
        );
    }
    assert!(is_there(&volume, &content, 2), "it is condemned, and its day is not over");
    assert_eq!(places.packs().len(), 2);
    assert_eq!(files(&places.data().join("probe")), Vec::<PathBuf>::new());
    volume.content = right;
    free(&volume, GRACE_PERIOD).unwrap();
}

/// The database clock decides, not the local clock: that is the clock of one node of many.
#[test]
fn a_database_tells_the_time_of_commits_and_whether_the_clock_is_right() {
    let Some(server) = Postgres::start(false) else {
        return shunt_test_support::skip::skip("PostgreSQL is not installed (run tests/setup)");
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (admin, line) =
        runtime.block_on(tokio_postgres::connect(&server.address(), tokio_postgres::NoTls)).unwrap();
    runtime.spawn(line);
    let run = |sql: &str| runtime.block_on(admin.batch_execute(sql)).unwrap();
    // Takes precedence over the server's own function.
    let set_clock = |by: &str| {
        run(&format!(
            "CREATE OR REPLACE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
             AS $$ SELECT pg_catalog.clock_timestamp() + interval '{by}' $$"
        ));
    };
    run("CREATE SCHEMA wrong");
    set_clock("-2 days");
    let address = format!("{}?options=-c%20search_path%3Dwrong%2Cpg_catalog", server.address());
    let places = Places::new();
    let options = Options { data: DataAddress::Directory(places.data()), ..Options::default() };
    let volume = create(&MetaAddress::Postgres(address), &"v".parse().unwrap(), &options).unwrap();
    let hours = |seed| {
        file(&volume, seed);
        let head = volume.meta.head().unwrap();
        let at = volume.meta.log_since(Seq(head.0 - 1), 1).unwrap()[0].at;
        (at.0 - system_clock()().0).div_euclid(3_600_000_000_000)
    };
    assert_eq!(hours(2), -49);
    let refused = free(&volume, Duration::ZERO).unwrap_err();
    assert!(
        matches!(refused, MaintenanceError::Clock { whose: "the metadata", minutes: 2878..=2880 }),
        "{refused}"
    );
    set_clock("2 hours");
    assert_eq!(hours(3), 1);
    assert!(matches!(free(&volume, GRACE_PERIOD), Err(MaintenanceError::Clock { minutes: 118..=120, .. })));
    set_clock("0 hours");
    assert_eq!(hours(4), 1, "times do not go back");
    free(&volume, GRACE_PERIOD).unwrap();
}

/// Environment variable that names the metadata of the volumes in the next test.
const META_VARIABLE: &str = "KEEP_PLACE_META";

#[test]
fn a_place_in_a_bucket_is_that_of_one_volume() {
    let Some(server) = S3::start() else {
        return shunt_test_support::skip::skip("versitygw is not installed (run tests/setup)");
    };
    let dir = tempfile::tempdir().unwrap();
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["store_owner::shares_a_bucket", "--exact", "--ignored"])
        .env(META_VARIABLE, dir.path())
        .env("AWS_ENDPOINT_URL", server.endpoint())
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", S3::KEYS.0)
        .env("AWS_SECRET_ACCESS_KEY", S3::KEYS.1)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert!(server.bucket().join("team").join(MARKER_KEY).exists());
}

#[test]
#[ignore = "is a process that a test starts"]
fn shares_a_bucket() {
    let Some(dir) = std::env::var_os(META_VARIABLE).map(PathBuf::from) else { return };
    let make = |name: &str, prefix: &str| {
        let options = Options { data: DataAddress::S3("bucket".into(), prefix.into()), ..Options::default() };
        create(&MetaAddress::Sqlite(dir.join(name)), &"v".parse().unwrap(), &options)
    };
    let volume = make("first", "team").unwrap();
    let content = file(&volume, 2);
    let refused = make("second", "team").unwrap_err();
    assert!(matches!(refused, OpenError::StoreOwner(StoreOwnerError::Taken(_))), "{refused}");
    assert!(refused.to_string().contains("s3://bucket/team"), "{refused}");
    make("second", "other").unwrap();
    send(&volume, 3);
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(free(&volume, Duration::from_secs(1)).unwrap().packs, 1);
    assert!(is_there(&volume, &content, 2));
    free(&volume, GRACE_PERIOD).unwrap();
}
