//! Tests of a gateway against nodes that do not behave like this program's client: excess connections, and uploads without
//! permission.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shunt_volume_chunks::Blobs;
use shunt_volume_store::SqliteStore;
use shunt_volume_types::id::{ObjectId, OwnerId, VolumeName};
use shunt_volume_types::object::{Content, Kind, Object, Time};
use shunt_volume_types::runtime::runtime;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::enrollment::greet;
use super::memory_budget::{MAX_CONNECTIONS_OF_NODE, MemoryBudget, Pool};
use super::protocol::{
    Failure, MAX_OBJECT_BYTES, NODE_VERSION, Purpose, Request, Response, ServerHello, receive, send,
    send_bytes,
};
use super::registry::Node;
use super::{Credentials, Gateway, NodeRegistry, Role, ServedVolume, Serving, Token, join};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

type Stream = TlsStream<TcpStream>;

struct Served {
    registry: Arc<NodeRegistry>,
    serving: Serving,
    memory: Arc<MemoryBudget>,
    _place: TempDir,
}

impl Served {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let name: VolumeName = "team".parse().unwrap();
        let root = Object {
            id: ObjectId::ROOT,
            kind: Kind::Directory,
            mode: 0o755,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: Time(0),
            target: Vec::new(),
            content: Content::empty(),
            xattrs: BTreeMap::new(),
        };
        let meta = Arc::new(SqliteStore::create(&place.path().join("meta"), &name, &root, b"").unwrap());
        let blobs = Blobs::directory(&place.path().join("chunks")).unwrap();
        let volume = ServedVolume { name, descriptor: Vec::new(), hides_names: false, meta, blobs };
        let registry = Arc::new(NodeRegistry::open(&place.path().join("registry")).unwrap());
        let gateway = Gateway::new(volume, registry.clone()).unwrap();
        let room = gateway.memory.clone();
        let serving = gateway.listen("127.0.0.1:0").unwrap();
        Self { registry, serving, memory: room, _place: place }
    }

    fn join(&self, role: Role, node: &str) -> Credentials {
        let secret = self.registry.invite(role, TEST_TIMEOUT).unwrap();
        let address = self.serving.address().to_string();
        join(&Token::new(address, "team".parse().unwrap(), &self.registry, secret), &node.parse().unwrap())
            .unwrap()
    }
}

async fn connect(credentials: &Credentials) -> Stream {
    let config = credentials.tls().unwrap();
    let (stream, welcome) =
        greet(&credentials.address, config, &credentials.volume, NODE_VERSION, Purpose::Work).await.unwrap();
    assert!(matches!(welcome, ServerHello::Work(_)), "{welcome:?}");
    stream
}

async fn exchange(stream: &mut Stream, request: &Request) -> Response {
    send(stream, request).await.unwrap();
    receive(stream, 1 << 20, TEST_TIMEOUT).await.unwrap().unwrap()
}

#[test]
fn a_node_has_so_many_connections() {
    let served = Served::new();
    let (greedy, other) = (served.join(Role::Read, "greedy"), served.join(Role::Read, "other"));
    runtime().block_on(async {
        let mut held = Vec::new();
        for _ in 0..MAX_CONNECTIONS_OF_NODE {
            held.push(connect(&greedy).await);
        }
        assert!(matches!(exchange(held.last_mut().unwrap(), &Request::Head).await, Response::Head(_)));
        let mut more = connect(&greedy).await;
        let refused = exchange(&mut more, &Request::Head).await;
        let Response::Failed(Failure::Unreachable(why)) = &refused else { panic!("{refused:?}") };
        assert!(why.contains("greedy has 128 connections"), "{why}");
        assert!(
            receive::<Response>(&mut more, 1 << 20, TEST_TIMEOUT).await.unwrap().is_none(),
            "the connection is closed"
        );
        assert!(matches!(exchange(&mut connect(&other).await, &Request::Head).await, Response::Head(_)));
        held.truncate(10);
        let mut more = loop {
            let mut more = connect(&greedy).await;
            if matches!(exchange(&mut more, &Request::Head).await, Response::Head(_)) {
                break more;
            }
        };
        assert!(matches!(exchange(&mut more, &Request::Head).await, Response::Head(_)));
    });
}

/// The contents pool is exhausted: a rejected upload needs no memory of it.
#[test]
fn upload_without_permission_takes_no_memory() {
    let served = Served::new();
    let (reader, writer) = (served.join(Role::Read, "reader"), served.join(Role::Write, "writer"));
    runtime().block_on(async {
        let full = Node { name: "full".parse().unwrap(), role: Role::Gateway, since: 0 };
        let full = served.memory.register(&full).unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(full.take(Pool::Contents, 128 << 20).await.unwrap());
        }
        let key = format!("packs/00/{:032x}", 1);
        let body = vec![0; MAX_OBJECT_BYTES as usize];
        let put = Request::PutBlob { key: key.clone(), length: MAX_OBJECT_BYTES };

        let mut stream = connect(&reader).await;
        send(&mut stream, &put).await.unwrap();
        send_bytes(&mut stream, &body).await.unwrap();
        let refused: Response = receive(&mut stream, 1 << 20, TEST_TIMEOUT).await.unwrap().unwrap();
        assert!(
            matches!(&refused, Response::Failed(Failure::RoleRequired { reason, .. }) if reason.contains("has role read")),
            "{refused:?}"
        );
        assert!(
            matches!(exchange(&mut stream, &Request::Head).await, Response::Head(_)),
            "the connection stays open"
        );
        // A reader's request of that length is rejected, too.
        let long = Request::Get(vec![ObjectId(u128::MAX); 1 << 17]);
        let refused = exchange(&mut stream, &long).await;
        assert!(matches!(&refused, Response::Failed(Failure::RoleRequired { .. })), "{refused:?}");

        let mut stream = connect(&writer).await;
        let stored = async {
            send(&mut stream, &put).await.unwrap();
            send_bytes(&mut stream, &body).await.unwrap();
            receive::<Response>(&mut stream, 1 << 20, TEST_TIMEOUT).await.unwrap().unwrap()
        };
        let mut stored = std::pin::pin!(stored);
        let waits = tokio::time::timeout(Duration::from_millis(500), &mut stored).await;
        assert!(waits.is_err(), "{waits:?}");
        held[0].shrink_to(64 << 20);
        let stored = stored.await;
        assert!(matches!(stored, Response::Done), "{stored:?}");
        let blob = exchange(&mut connect(&reader).await, &Request::StatBlob { key }).await;
        assert!(matches!(&blob, Response::Stat(stat) if stat.size == MAX_OBJECT_BYTES), "{blob:?}");
    });
}
