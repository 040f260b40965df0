//! Contents in a bucket of a real S3 server.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use shunt_test_support::servers::S3;
use shunt_volume::address::MetaAddress;
use shunt_volume::chunks::{Blobs, ChunkKeys, ContentError, ContentStore};
use shunt_volume::gateway::{Client, Gateway, NodeRegistry, Role, Token, join};
use shunt_volume::id::{ObjectId, OwnerId};
use shunt_volume::object::{Content, Kind, Object, Time};
use shunt_volume::open::{self, Options};
use shunt_volume::store::{MetaStore, SqliteStore, Transaction};

fn meta() -> SqliteStore {
    let root = Object {
        id: ObjectId::ROOT,
        kind: Kind::Directory,
        mode: 0o755,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    };
    SqliteStore::in_memory(&"v".parse().unwrap(), &root, b"").unwrap()
}

fn builder(endpoint: &str, keys: (&str, &str)) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_allow_http(true)
        .with_region("us-east-1")
        .with_bucket_name("bucket")
        .with_access_key_id(keys.0)
        .with_secret_access_key(keys.1)
}

fn content(builder: AmazonS3Builder) -> ContentStore {
    ContentStore::new(Blobs::over_s3(builder, "volumes/v").unwrap(), ChunkKeys::open([1; 32]))
}

fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

#[test]
fn files_come_back_from_a_bucket() {
    let Some(server) = S3::start() else {
        return shunt_test_support::skip::skip("versitygw is not installed (run tests/setup)");
    };
    let (meta, content) = (meta(), content(builder(&server.endpoint(), S3::KEYS)));
    content.probe().unwrap();
    let large = noise(70 << 20);
    let mut upload = content.upload(&meta);
    let files: Vec<&[u8]> = vec![&large, &large[..1000], &large[5..100_000]];
    let contents: Vec<_> =
        files.iter().map(|file| upload.put(*file, file.len() as u64, None).unwrap()).collect();
    let sent = upload.finish().unwrap();
    let stored = server.bucket().join("volumes/v/packs");
    assert!(stored.is_dir(), "below the prefix");
    meta.commit(&"n".parse().unwrap(), 1, &[Transaction { chunks: sent.chunks, ..Transaction::default() }])
        .unwrap();
    for (bytes, kept) in files.iter().zip(&contents) {
        let file = tempfile::tempfile().unwrap();
        let come = std::sync::atomic::AtomicU64::new(0);
        let count = |came: std::ops::Range<u64>| {
            come.fetch_add(came.end - came.start, std::sync::atomic::Ordering::Relaxed);
        };
        content.fetch_file(&meta, kept, &file, &count).unwrap();
        let mut read = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == **bytes);
        assert_eq!(come.into_inner(), bytes.len() as u64);
    }

    // A truncated pack is damaged, not unreachable: the requested range is beyond its end.
    for group in std::fs::read_dir(&stored).unwrap() {
        for pack in std::fs::read_dir(group.unwrap().path()).unwrap() {
            std::fs::File::options().write(true).open(pack.unwrap().path()).unwrap().set_len(1).unwrap();
        }
    }
    let last = contents.last().unwrap();
    let cut = content.fetch_file(&meta, last, &tempfile::tempfile().unwrap(), &|_| ()).unwrap_err();
    assert!(matches!(&cut, ContentError::Damaged(_)), "{cut}");
}

#[test]
fn misconfigured_bucket_is_reported_soon() {
    let Some(server) = S3::start() else {
        return shunt_test_support::skip::skip("versitygw is not installed (run tests/setup)");
    };
    let wrong = |builder| content(builder).probe().unwrap_err();
    let begun = Instant::now();
    let keys = wrong(builder(&server.endpoint(), ("nobody", "nothing")));
    assert!(matches!(&keys, ContentError::Unreachable(_)), "{keys}");
    let secret = wrong(builder(&server.endpoint(), (S3::KEYS.0, "nothing")));
    assert!(matches!(&secret, ContentError::Denied(_)), "{secret}");
    let bucket = wrong(builder(&server.endpoint(), S3::KEYS).with_bucket_name("other"));
    assert!(matches!(&bucket, ContentError::Unreachable(_)), "{bucket}");
    let endpoint = server.endpoint();
    let there = content(builder(&endpoint, S3::KEYS));
    drop(server);
    let gone = there.probe().unwrap_err();
    assert!(gone.is_unreachable(), "{gone}");
    assert!(begun.elapsed() < Duration::from_secs(45), "{:?}", begun.elapsed());
}

/// Like the test before, for a node behind a gateway.
#[test]
fn silent_server_behind_gateway_times_out_in_ten_seconds() {
    let place = tempfile::tempdir().unwrap();
    let (at, name) = (MetaAddress::Sqlite(place.path().join("volume")), "v".parse().unwrap());
    let mut volume = open::create(&at, &name, &Options::default()).unwrap();
    let elsewhere = Blobs::directory(&place.path().join("elsewhere")).unwrap();
    let there = ContentStore::new(elsewhere, ChunkKeys::open([1; 32]));
    let mut upload = there.upload(&*volume.meta);
    let stored = upload.put(&noise(8192)[..], 8192, None).unwrap();
    let sent = upload.finish().unwrap();
    let item = Transaction { chunks: sent.chunks, ..Transaction::default() };
    volume.meta.commit(&"n".parse().unwrap(), 1, &[item]).unwrap();
    for output in [&b""[..], BEGINS] {
        volume.content = content(builder(&says(output), S3::KEYS));
        let book = Arc::new(NodeRegistry::open(&place.path().join(format!("book{}", output.len()))).unwrap());
        let serving = Gateway::new(&volume, book.clone()).unwrap().listen("127.0.0.1:0").unwrap();
        let secret = book.invite(Role::Read, Duration::from_secs(60)).unwrap();
        let token = Token::new(serving.address().to_string(), name.clone(), &book, secret);
        let client = Client::new(join(&token, &"desk".parse().unwrap()).unwrap()).unwrap();
        let behind = ContentStore::new(Blobs::over(Arc::new(client.blobs())), ChunkKeys::open([1; 32]));
        let begun = Instant::now();
        let error = behind.read(&client, &stored, 0..8192).unwrap_err();
        let took = begun.elapsed();
        assert!(error.is_unreachable() && error.to_string().contains("no response"), "{error}");
        assert!(took > Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
    }
}

/// Starts a server that sends the beginning of an object and then stalls. Returns its endpoint.
fn says(what: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the test process, and so do its connections.
    std::thread::spawn(move || {
        let mut kept: Vec<TcpStream> = Vec::new();
        for mut client in listener.incoming().flatten() {
            let asked = client.read(&mut [0; 4096]);
            assert!(asked.is_ok_and(|length| length > 0) && client.write_all(what).is_ok());
            kept.push(client);
        }
    });
    endpoint
}

const BEGINS: &[u8] =
    b"HTTP/1.1 206 Partial Content\r\nContent-Length: 8192\r\nContent-Range: bytes 0-8191/8192\r\n\
    ETag: \"one\"\r\nLast-Modified: Mon, 23 Nov 2026 12:00:00 GMT\r\n\r\nsome of it";

#[test]
fn silent_server_times_out_in_ten_seconds() {
    let Some(server) = S3::start() else {
        return shunt_test_support::skip::skip("versitygw is not installed (run tests/setup)");
    };
    let (meta, there) = (meta(), content(builder(&server.endpoint(), S3::KEYS)));
    let mut upload = there.upload(&meta);
    let bytes = noise(8192);
    let stored = upload.put(&bytes[..], 8192, None).unwrap();
    let sent = upload.finish().unwrap();
    meta.commit(&"n".parse().unwrap(), 1, &[Transaction { chunks: sent.chunks, ..Transaction::default() }])
        .unwrap();
    assert!(there.read(&meta, &stored, 0..8192).unwrap() == bytes);
    std::thread::scope(|scope| {
        for output in [&b""[..], BEGINS] {
            let (meta, stored) = (&meta, &stored);
            scope.spawn(move || {
                let silent = content(builder(&says(output), S3::KEYS));
                let begun = Instant::now();
                let error = silent.read(meta, stored, 0..8192).unwrap_err();
                let took = begun.elapsed();
                assert!(error.to_string().contains("no response"), "{error}");
                assert!(took > Duration::from_secs(9) && took < Duration::from_secs(20), "{took:?}");
            });
        }
    });
}
