//! Denial of service: unauthenticated clients do not block authenticated nodes.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, connect, socket};
use rustix::process::{Resource, getrlimit, setrlimit};
use shunt_volume::gateway::{JoinError, Role};
use shunt_volume::store::MetaStore as _;

use super::{MINUTE, Served, name};

/// More connections than a gateway ever serves.
const OVERLOAD_CONNECTIONS: usize = 4200;

/// Opens a silent connection from another address of this machine.
fn silent(served: &Served, host: u8) -> Option<TcpStream> {
    let std::net::SocketAddr::V4(to) = served.address else { panic!("{}", served.address) };
    let socket: OwnedFd = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    bind(&socket, &SocketAddrV4::new([127, 0, 0, host].into(), 0)).ok()?;
    connect(&socket, &to).ok()?;
    Some(socket.into())
}

/// Silent connections from one address take no connection slots of known nodes.
#[test]
fn silent_client_does_not_block_others() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let served = Served::new();
    let (client, _) = served.client(Role::Write, "desk");
    let silent: Vec<TcpStream> = (0..OVERLOAD_CONNECTIONS).filter_map(|_| silent(&served, 2)).collect();
    assert_eq!(silent.len(), OVERLOAD_CONNECTIONS);
    let began = Instant::now();
    client.head().unwrap();
    // Another node, which has no connection yet.
    served.client(Role::Write, "lap").0.head().unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(silent);
}

/// Guessed tokens are refused without a registry lookup, while other clients are served.
#[test]
fn tries_to_join_are_bounded() {
    let served = Served::new();
    let stale = served.token(Role::Read, MINUTE);
    served.join(&stale, "first").unwrap();
    let refused = |n: usize| match served.join(&stale, &format!("thief{n}")) {
        Err(JoinError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let reasons: Vec<String> = (0..12).map(refused).collect();
    assert!(reasons[0].contains("was used"), "{reasons:?}");
    assert!(reasons[11].contains("too many refused attempts"), "{reasons:?}");
    assert!(served.book.nodes().unwrap().iter().all(|node| node.name == name("first")));
}
