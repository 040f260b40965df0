//! Gateways, over real connections.

mod chained;
mod unauthenticated;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use shunt_volume::address::MetaAddress;
use shunt_volume::gateway::{
    Client, Credentials, Gateway, GatewayObjects, JoinError, NodeRegistry, Role, Serving, Token, join,
};
use shunt_volume::id::{NodeName, ObjectId, OwnerId, Seq, VolumeName};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time};
use shunt_volume::open::{self, Options};
use shunt_volume::replica::{NewObject, Options as ReplicaOptions, ROOT, Replica, SyncAdapter};
use shunt_volume::store::{
    LeaseRequest, MetaStore as _, Mutation, Precondition, Rejected, StoreError, Transaction,
};
use shunt_volume::sync::Synchroniser;
use shunt_volume::volume::Volume;
use tempfile::TempDir;
use tokio::runtime::Runtime;

const MINUTE: Duration = Duration::from_secs(60);

fn object(id: u128, kind: Kind) -> Object {
    Object {
        id: ObjectId(id),
        kind,
        mode: 0o755,
        owner: OwnerId(0),
        group: OwnerId(0),
        modified: Time(0),
        target: Vec::new(),
        content: Content::empty(),
        xattrs: Default::default(),
    }
}

fn volume() -> VolumeName {
    "team".parse().unwrap()
}

fn name(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// A transaction that creates a file in the root directory.
fn make(id: u128, name: &[u8]) -> Transaction {
    let at = LinkName { parent: ObjectId::ROOT, name: name.to_vec() };
    Transaction {
        preconditions: vec![Precondition::Link(at.clone(), None)],
        mutations: vec![Mutation::Make(object(id, Kind::Regular)), Mutation::Link(at, ObjectId(id))],
        chunks: Vec::new(),
    }
}

/// Returns the key of a pack.
fn pack(number: u128) -> Key {
    Key::from(format!("packs/{:02x}/{number:032x}", number >> 120))
}

async fn put(blobs: &GatewayObjects, key: &Key, bytes: &[u8]) -> object_store::Result<()> {
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    blobs.put_opts(key, PutPayload::from(bytes.to_vec()), options).await.map(|_| ())
}

/// Reserves an address at which a gateway can restart.
fn own_address() -> String {
    format!("127.0.0.1:{}", shunt_test_support::port::reserve())
}

/// A gateway on its own port.
struct Served {
    address: SocketAddr,
    book: Arc<NodeRegistry>,
    volume: Volume,
    runtime: Runtime,
    serving: Serving,
    place: TempDir,
}

impl Served {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let at = MetaAddress::Sqlite(place.path().join("volume"));
        let volume = open::create(&at, &volume(), &Options::default()).unwrap();
        Self::over(place, volume, &own_address())
    }

    fn over(place: TempDir, volume: Volume, at: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let book = Arc::new(NodeRegistry::open(&place.path().join("book")).unwrap());
        let serving = Gateway::new(&volume, book.clone()).unwrap().listen(at).unwrap();
        let address = serving.address();
        Self { address, book, volume, runtime, serving, place }
    }

    fn token(&self, role: Role, good_for: Duration) -> Token {
        let secret = self.book.invite(role, good_for).unwrap();
        Token::new(self.address.to_string(), volume(), &self.book, secret)
    }

    fn join(&self, token: &Token, node: &str) -> Result<Credentials, JoinError> {
        join(token, &name(node))
    }

    fn client(&self, role: Role, node: &str) -> (Client, GatewayObjects) {
        let credentials = self.join(&self.token(role, MINUTE), node).unwrap();
        let client = Client::new(credentials).unwrap();
        let blobs = client.blobs();
        (client, blobs)
    }
}

#[test]
fn a_token_is_good_once_and_for_a_while() {
    let served = Served::new();
    let token = served.token(Role::Write, MINUTE);
    let text = token.to_string();
    assert_eq!(text.parse::<Token>().unwrap(), token);
    let (start, end) = text.split_at(40);
    assert_eq!(format!("  {start}\n {end}\n").parse::<Token>().unwrap(), token, "as a mail breaks it");
    assert!(matches!(start.parse::<Token>(), Err(JoinError::Token)));

    let credentials = served.join(&token, "desk").unwrap();
    let refused = |token: &Token, node: &str| match served.join(token, node) {
        Err(JoinError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(&token, "thief").contains("was used"));
    let next = served.token(Role::Read, MINUTE);
    assert!(refused(&next, "desk").contains("node desk exists already"));
    served.join(&next, "lap").unwrap();
    let late = served.token(Role::Read, Duration::ZERO);
    std::thread::sleep(Duration::from_millis(2100));
    assert!(refused(&late, "late").contains("expired"));
    let elsewhere = Token { volume: "other".parse().unwrap(), ..served.token(Role::Read, MINUTE) };
    assert!(refused(&elsewhere, "x").contains("serves volume team"));

    let nodes: Vec<_> =
        served.book.nodes().unwrap().into_iter().map(|node| (String::from(node.name), node.role)).collect();
    assert_eq!(nodes, [("desk".to_owned(), Role::Write), ("lap".to_owned(), Role::Read)]);

    let file = served.place.path().join("node");
    credentials.save(&file).unwrap();
    assert_eq!(Credentials::load(&file).unwrap(), credentials);
    for file in [file, served.place.path().join("book")] {
        assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn nodes_commit_under_their_own_name() {
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    let batch = [make(2, b"a"), make(3, b"a"), make(4, b"b")];
    let denied = client.commit(&name("boss"), 1, &batch).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("this node is desk")), "{denied}");
    let answers = client.commit(&name("desk"), 1, &batch).unwrap();
    assert_eq!(answers, [Ok(Seq(1)), Err(Rejected::Stale(0)), Ok(Seq(2))]);
    // A repeated batch is not applied twice.
    assert_eq!(client.commit(&name("desk"), 1, &batch).unwrap(), answers);
    let log = client.log_since(Seq(0), 10).unwrap();
    assert_eq!(log, served.volume.meta.log_since(Seq(0), 10).unwrap());
    assert_eq!((log.len(), log[0].node.as_str()), (2, "desk"));
    assert_eq!(client.head().unwrap(), Seq(2));
    assert_eq!(client.scan(ObjectId(0), 10).unwrap(), served.volume.meta.scan(ObjectId(0), 10).unwrap());
    assert_eq!(client.get(&[ObjectId(2), ObjectId(9)]).unwrap()[1], None);
}

/// 35 MiB of attributes, more than the 32 MiB of a message: pushed, and read by another node later.
#[test]
fn long_response_is_split_into_messages() {
    let served = Served::new();
    let machine = |node: &str| {
        let client = Arc::new(served.client(Role::Write, node).0);
        let options = ReplicaOptions { background: false, ..ReplicaOptions::new("team", name(node)) };
        let replica = Arc::new(Replica::open(&served.place.path().join(node), options).unwrap());
        let site = SyncAdapter::new(replica.clone(), client.clone(), served.volume.content.clone());
        (replica, Synchroniser::new(site, client.clone(), name(node), rand::random::<u128>), client)
    };
    let (desk, mut sending, client) = machine("desk");
    let value = vec![b'x'; 65_536];
    for n in 0..560 {
        let new =
            NewObject { kind: Kind::Regular, mode: 0o644, owner: OwnerId(0), group: OwnerId(0), target: b"" };
        let num = desk.make(ROOT, n.to_string().as_bytes(), new).unwrap().ino;
        desk.set_xattr(num, b"user.large", Some(&value), None).unwrap();
    }
    while sending.step().unwrap().sent > 0 {}
    assert_eq!(desk.pending_count().unwrap(), 0);
    let whole = served.volume.meta.log_since(Seq(0), 8192).unwrap();
    assert!(client.log_since(Seq(0), 8192).unwrap() == whole);
    let (mut objects, mut from) = (0, Some(ObjectId(0)));
    while let Some(at) = from {
        let page = client.scan(at, 8192).unwrap();
        objects += page.objects.len();
        from = page.next;
    }
    assert_eq!(objects, 561);
    let (lap, mut reading, _) = machine("lap");
    while reading.step().unwrap().received > 0 {}
    let last = lap.lookup(ROOT, b"559").unwrap().ino;
    assert_eq!(lap.xattr(last, b"user.large").unwrap(), value);
}

#[test]
fn a_node_opens_the_volume_by_its_credentials() {
    let served = Served::new();
    let credentials = served.join(&served.token(Role::Write, MINUTE), "desk").unwrap();
    let file = served.place.path().join("node");
    credentials.save(&file).unwrap();
    let at: MetaAddress = format!("gateway:{}", file.display()).parse().unwrap();
    let opened = open::open(&at, &volume(), None).unwrap();
    assert_eq!(opened.described, served.volume.described);
    assert_eq!(opened.meta.head().unwrap(), Seq(0));
    assert!(opened.admin().is_err());
    open::open(&at, &"other".parse().unwrap(), None).unwrap_err();
    open::create(&at, &volume(), &Options::default()).unwrap_err();
}

#[test]
fn waiting_client_is_woken() {
    let served = Served::new();
    let (client, _) = served.client(Role::Read, "desk");
    assert!(!client.wait(Seq(0), Duration::from_millis(50)).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let began = Instant::now();
            (client.wait(Seq(0), Duration::from_secs(50)).unwrap(), began.elapsed())
        });
        std::thread::sleep(Duration::from_millis(200));
        served.volume.meta.commit(&name("other"), 1, &[make(2, b"a")]).unwrap();
        let (woken, after) = waiting.join().unwrap();
        assert!(woken && after < Duration::from_secs(20), "{after:?}");
    });
}

/// The first eight long polls of a node hold a thread; the others are answered soon, after one check.
#[test]
fn a_node_that_waits_too_often_is_answered_soon() {
    let served = Served::new();
    let (client, _) = served.client(Role::Read, "desk");
    let waited = || {
        let begun = Instant::now();
        (client.wait(Seq(0), Duration::from_secs(30)).unwrap(), begun.elapsed())
    };
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..12).map(|_| scope.spawn(waited)).collect();
        let soon = Instant::now() + Duration::from_secs(10);
        while waits.iter().filter(|wait| wait.is_finished()).count() < 4 && Instant::now() < soon {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (done, waiting): (Vec<_>, Vec<_>) = waits.into_iter().partition(|wait| wait.is_finished());
        assert_eq!((done.len(), waiting.len()), (4, 8));
        assert!(done.into_iter().all(|wait| !wait.join().unwrap().0));
        let late = scope.spawn(waited);
        std::thread::sleep(Duration::from_millis(300));
        served.volume.meta.commit(&name("other"), 1, &[make(2, b"a")]).unwrap();
        for wait in waiting.into_iter().chain([late]) {
            assert!(wait.join().unwrap().0, "it hears of what comes");
        }
    });
}

#[test]
fn no_more_is_asked_for_at_once_than_a_gateway_answers() {
    let served = Served::new();
    let (client, _) = served.client(Role::Read, "desk");
    assert_eq!(client.get(&vec![ObjectId(2); 8192]).unwrap().len(), 8192);
    let refused = client.get(&vec![ObjectId(2); 8193]).unwrap_err();
    assert!(refused.to_string().contains("more than 8192"), "{refused}");
    let history = client.history().unwrap();
    let refused = history.objects_at(&vec![ObjectId(2); 8193], Seq(0)).unwrap_err();
    assert!(refused.to_string().contains("more than 8192"), "{refused}");
    assert_eq!(client.head().unwrap(), Seq(0));
}

#[test]
fn roles_are_kept() {
    let served = Served::new();
    let (reader, read) = served.client(Role::Read, "reader");
    let (writer, write) = served.client(Role::Write, "writer");
    let key = pack(1);
    let denied = reader.commit(&name("reader"), 1, &[make(2, b"a")]).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("reader has role read")), "{denied}");
    served.runtime.block_on(async {
        put(&read, &key, b"bytes").await.unwrap_err();
        put(&write, &key, b"bytes").await.unwrap();
        write.delete(&key).await.unwrap_err();
    });
    assert_eq!(reader.head().unwrap(), Seq(0));
    // The role applies from the next request on, also on open connections.
    assert!(served.book.set_role(&name("reader"), Role::Admin).unwrap());
    reader.commit(&name("reader"), 2, &[make(2, b"a")]).unwrap();
    served.runtime.block_on(read.delete(&key)).unwrap();
    assert!(served.book.remove(&name("writer")).unwrap());
    let gone = writer.commit(&name("writer"), 3, &[make(3, b"b")]).unwrap_err();
    assert!(matches!(&gone, StoreError::Denied(why) if why.contains("not known here")), "{gone}");
    assert_eq!(reader.head().unwrap(), Seq(1));
}

#[test]
fn a_node_knows_its_role_as_it_was_told_last() {
    let served = Served::new();
    let credentials = served.join(&served.token(Role::Read, MINUTE), "desk").unwrap();
    assert_eq!(credentials.role, Some(Role::Read), "before it has asked anything");
    let file = served.place.path().join("node");
    credentials.save(&file).unwrap();
    let client = Client::of(credentials, &file).unwrap();
    for (role, may) in [(Role::Write, true), (Role::Read, false), (Role::Admin, true)] {
        client.head().unwrap();
        served.book.set_role(&name("desk"), role).unwrap();
        // On an open connection.
        client.head().unwrap();
        assert_eq!(client.only_reads().is_none(), may, "{role}");
        assert_eq!(Credentials::load(&file).unwrap().role, Some(role));
    }
    served.book.set_role(&name("desk"), Role::Read).unwrap();
    client.head().unwrap();
    let Served { serving, .. } = served;
    serving.stop().unwrap();
    let again = Client::of(Credentials::load(&file).unwrap(), &file).unwrap();
    assert_eq!(again.only_reads().as_deref(), Some("desk has role read, and this needs write"));
    // Credentials written by an older version contain no role.
    let text = std::fs::read_to_string(&file).unwrap();
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older.as_object_mut().unwrap().remove("role");
    std::fs::write(&file, older.to_string()).unwrap();
    assert_eq!(Credentials::load(&file).unwrap().role, None);
}

#[test]
fn certificates_of_others_are_worth_nothing() {
    let (served, other) = (Served::new(), Served::new());
    let mut credentials = other.join(&other.token(Role::Admin, MINUTE), "desk").unwrap();
    credentials.address = served.address.to_string();
    let client = Client::new(credentials).unwrap();
    let refused = client.head().unwrap_err();
    assert!(matches!(&refused, StoreError::Unreachable(why) if why.contains("certificate")), "{refused}");
}

#[test]
fn contents_come_and_go() {
    let served = Served::new();
    let (_client, blobs) = served.client(Role::Admin, "desk");
    let key = pack(0);
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at / 7) as u8).collect();
    served.runtime.block_on(async {
        put(&blobs, &key, &bytes).await.unwrap();
        put(&blobs, &key, b"other").await.unwrap();
        blobs.put(&key, "written over".into()).await.unwrap_err();
        assert_eq!(blobs.get(&key).await.unwrap().bytes().await.unwrap(), bytes);
        assert_eq!(blobs.get_range(&key, 1000..5000).await.unwrap(), bytes[1000..5000]);
        assert_eq!(blobs.get_range(&key, 2_999_990..4_000_000).await.unwrap(), bytes[2_999_990..]);
        let tail = GetOptions { range: Some(GetRange::Suffix(5)), ..GetOptions::default() };
        assert_eq!(blobs.get_opts(&key, tail).await.unwrap().bytes().await.unwrap(), bytes[2_999_995..]);
        assert_eq!(blobs.head(&key).await.unwrap().size, 3_000_000);
        let none = blobs.get(&pack(2)).await.unwrap_err();
        assert!(matches!(none, object_store::Error::NotFound { .. }), "{none}");
        // More objects than one reply lists.
        for at in 0..1100 {
            put(&blobs, &pack(0xff << 120 | at), &[at as u8]).await.unwrap();
        }
        let many: Vec<_> = blobs.list(Some(&Key::from("packs/ff"))).try_collect().await.unwrap();
        let keys: Vec<String> = many.iter().map(|meta| meta.location.to_string()).collect();
        let wanted: Vec<String> = (0..1100).map(|at| pack(0xff << 120 | at).to_string()).collect();
        assert_eq!(keys, wanted);
        blobs.delete(&key).await.unwrap();
        blobs.head(&key).await.unwrap_err();
    });
}

#[test]
fn object_keys_reach_contents_only() {
    let served = Served::new();
    let (_client, blobs) = served.client(Role::Admin, "desk");
    let objects = served.volume.content.blobs().objects();
    served.runtime.block_on(async {
        let long = format!("packs/00/{:033x}", 1);
        let upper = format!("packs/00/{:032X}", u128::MAX);
        let others = ["secret", "packs", "packs/00", "packs/0/x", "probe/x", "other/00/x", &long, &upper]
            .map(Key::from);
        for key in &others[..] {
            put(&blobs, key, b"bytes").await.unwrap_err();
            assert!(objects.head(key).await.is_err(), "{key} was put");
        }
        let secret = &others[0];
        objects.put(secret, "bytes".into()).await.unwrap();
        for error in [blobs.get(secret).await.map(drop), blobs.head(secret).await.map(drop)] {
            let error = error.unwrap_err();
            assert!(matches!(error, object_store::Error::NotFound { .. }), "{error}");
        }
        let denied = blobs.delete(secret).await.unwrap_err();
        assert!(matches!(denied, object_store::Error::PermissionDenied { .. }), "{denied}");
        objects.head(secret).await.unwrap();
        for prefix in [None, Some(Key::from("other")), Some(Key::from("packs2"))] {
            blobs.list(prefix.as_ref()).try_collect::<Vec<_>>().await.unwrap_err();
        }
        for key in [pack(7), Key::from(format!("probe/{:032x}", 7))] {
            put(&blobs, &key, b"bytes").await.unwrap();
            let below = Key::from_iter(key.parts().next());
            let found: Vec<_> = blobs.list(Some(&below)).try_collect().await.unwrap();
            assert_eq!(found.len(), 1);
            blobs.delete(&key).await.unwrap();
        }
    });
}

/// A message of two bytes that would decode to a hundred in memory.
#[test]
fn a_message_does_not_take_more_memory_than_it_is_worth() {
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    let item = Transaction {
        preconditions: vec![Precondition::Exists(ObjectId::ROOT); 1 << 20],
        ..Transaction::default()
    };
    let refused = client.commit(&name("desk"), 1, &[item]).unwrap_err();
    assert!(refused.to_string().contains("exceeds the memory limit"), "{refused}");
    let refused = client.commit(&name("desk"), 2, &vec![make(2, b"a"); 8193]).unwrap_err();
    assert!(refused.to_string().contains("more than 8192"), "{refused}");
    assert_eq!(client.head().unwrap(), Seq(0));
    // A batch of the maximum size.
    let items: Vec<_> = (0..1024).map(|n| make(n + 2, n.to_string().as_bytes())).collect();
    assert!(client.commit(&name("desk"), 3, &items).unwrap().iter().all(Result::is_ok));
}

#[test]
fn an_answer_that_is_too_long_is_refused_and_not_made() {
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    let mut large = make(2, b"a");
    large.mutations.push(Mutation::SetXattr(ObjectId(2), b"user.large".to_vec(), Some(vec![b'x'; 65_536])));
    client.commit(&name("desk"), 1, &[large]).unwrap()[0].clone().unwrap();
    let ids = [ObjectId(2), ObjectId(9), ObjectId(2)];
    let found = client.get(&ids).unwrap();
    assert_eq!(found, served.volume.meta.get(&ids).unwrap());
    assert!(found[0].is_some() && found[1].is_none());
    let history = client.history().unwrap();
    assert_eq!(history.objects_at(&ids, Seq(1)).unwrap(), found);
    let repeated = vec![ObjectId(2); 8192];
    for refused in [client.get(&repeated), history.objects_at(&repeated, Seq(1))] {
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, StoreError::Damaged(why) if why.contains("ask for less")), "{refused}");
    }
}

#[test]
fn no_more_leases_are_taken_in_a_message_than_a_node_has() {
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    let ask = |count| LeaseRequest {
        session: 1,
        ttl_ms: 5000,
        acquire: (0..count).map(|lease| (lease, ObjectId(2))).collect(),
        ..LeaseRequest::default()
    };
    client.lease(&name("desk"), &ask(2048)).unwrap();
    let denied = client.lease(&name("desk"), &ask(2049)).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("2048 leases")), "{denied}");
}

#[test]
fn a_gateway_that_comes_back_is_used_again() {
    let served = Served::new();
    let credentials = served.join(&served.token(Role::Write, MINUTE), "desk").unwrap();
    let client = Client::new(credentials).unwrap();
    client.commit(&name("desk"), 1, &[make(2, b"a")]).unwrap();
    let Served { address, volume, serving, place, .. } = served;
    serving.stop().unwrap();
    assert!(matches!(client.head(), Err(StoreError::Unreachable(_))));
    // Another certificate, signed by the same authority.
    let _served = Served::over(place, volume, &address.to_string());
    assert_eq!(client.head().unwrap(), Seq(1));
}

/// A read over a silent connection waits for one timeout, not two.
#[test]
fn slow_request_is_not_repeated() {
    let served = Served::new();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let credentials = served.join(&served.token(Role::Read, MINUTE), "desk").unwrap();
    let client = Client::new(credentials.with_address(&between.local_addr().unwrap().to_string())).unwrap();
    let (there, came) = (served.address, Arc::new(AtomicUsize::new(0)));
    let (is_silent, count) = (Arc::new(AtomicBool::new(false)), came.clone());
    let silent = is_silent.clone();
    // The thread ends with the test process.
    std::thread::spawn(move || {
        for near in between.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            let far = TcpStream::connect(there).unwrap();
            let (mut up, mut down) = ((near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near));
            let silent = silent.clone();
            std::thread::spawn(move || std::io::copy(&mut down.0, &mut down.1));
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(length @ 1..) = up.0.read(&mut bytes) {
                    if silent.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_secs(3));
                        up.0.shutdown(std::net::Shutdown::Both).unwrap();
                        return;
                    }
                    up.1.write_all(&bytes[..length]).unwrap();
                }
            });
        }
    });
    client.head().unwrap();
    is_silent.store(true, Ordering::SeqCst);
    let error = client.head().unwrap_err();
    assert!(matches!(&error, StoreError::Unreachable(_)), "{error}");
    assert_eq!(came.load(Ordering::SeqCst), 1);
    is_silent.store(false, Ordering::SeqCst);
    client.head().unwrap();
    assert_eq!(came.load(Ordering::SeqCst), 2);
}

#[test]
fn nonsense_ends_its_connection_alone() {
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    // Fewer than may wait for their handshake from one address.
    let mut others: Vec<_> = (0..48u8)
        .map(|at| {
            let mut stream = TcpStream::connect(served.address).unwrap();
            let bytes: Vec<u8> = (0..200u8).map(|byte| byte.wrapping_mul(at).wrapping_add(at)).collect();
            if at % 2 == 0 {
                stream.write_all(&bytes).unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(client.head().unwrap(), Seq(0));
    // The wait for a silent client is bounded.
    others[1].set_read_timeout(Some(MINUTE)).unwrap();
    let _ = others[1].read_to_end(&mut Vec::new());
    assert_eq!(client.commit(&name("desk"), 1, &[make(2, b"a")]).unwrap(), [Ok(Seq(1))]);
}
