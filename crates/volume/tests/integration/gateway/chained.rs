//! Chained gateways: a gateway whose store is another gateway.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use object_store::ObjectStoreExt as _;
use shunt_volume::address::MetaAddress;
use shunt_volume::gateway::{Credentials, Role};
use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::open;
use shunt_volume::store::{LeaseRequest, MetaStore as _, StoreError};
use tempfile::TempDir;

use crate::gateway::{MINUTE, Served, make, name, pack, put, volume};

/// Creates a directory with the credentials of a gateway's node.
fn place_of(served: &Served, role: Role, node: &str) -> (TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("credentials");
    served.join(&served.token(role, MINUTE), node).unwrap().save(&file).unwrap();
    (place, file)
}

/// Starts a gateway with these credentials.
fn behind((place, file): (TempDir, PathBuf), at: &str) -> Served {
    let volume = open::open_to_serve(&MetaAddress::Gateway(file), &volume()).unwrap();
    Served::over(place, volume, at)
}

#[test]
fn nodes_are_who_they_are_however_far_away() {
    let front = Served::new();
    let branch = behind(place_of(&front, Role::Gateway, "branch"), "127.0.0.1:0");
    let (desk, write) = branch.client(Role::Write, "desk");
    let (lamp, read) = branch.client(Role::Read, "lamp");
    assert_eq!(branch.volume.meta.gateway_path().unwrap().map(|way| way.len()), Some(1));
    assert!(matches!(desk.gateway_path(), Err(StoreError::NotGateway(_))), "it is no gateway");

    desk.commit(&name("desk"), 1, &[make(2, b"a")]).unwrap()[0].clone().unwrap();
    let log = front.volume.meta.log_since(Seq(0), 10).unwrap();
    assert_eq!(log.iter().map(|entry| entry.node.as_str()).collect::<Vec<_>>(), ["desk"]);
    assert_eq!(lamp.log_since(Seq(0), 10).unwrap(), log);
    // Each gateway assigns the roles of its own nodes.
    let denied = lamp.commit(&name("lamp"), 3, &[make(4, b"c")]).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("lamp has role read")), "{denied}");

    let key = pack(1);
    branch.runtime.block_on(async {
        put(&write, &key, b"bytes").await.unwrap();
        put(&read, &key, b"bytes").await.unwrap_err();
        assert_eq!(&read.get(&key).await.unwrap().bytes().await.unwrap()[..], b"bytes");
        write.delete(&key).await.unwrap_err();
    });

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let began = Instant::now();
            (lamp.wait(Seq(1), Duration::from_secs(50)).unwrap(), began.elapsed())
        });
        std::thread::sleep(Duration::from_millis(200));
        front.volume.meta.commit(&name("other"), 1, &[make(5, b"d")]).unwrap();
        let (woken, after) = waiting.join().unwrap();
        assert!(woken && after < Duration::from_secs(20), "{after:?}");
    });
}

/// Two nodes of one gateway hold leases of their own.
#[test]
fn leases_are_those_of_the_nodes() {
    let front = Served::new();
    let branch = behind(place_of(&front, Role::Gateway, "branch"), "127.0.0.1:0");
    let (desk, _) = branch.client(Role::Write, "desk");
    let (lamp, _) = branch.client(Role::Write, "lamp");
    let ask =
        |session, take| LeaseRequest { session, ttl_ms: 60_000, acquire: take, ..LeaseRequest::default() };
    assert!(desk.lease(&name("desk"), &ask(1, vec![(7, ObjectId(2))])).unwrap().is_new_session);
    let response = lamp.lease(&name("lamp"), &ask(2, Vec::new())).unwrap();
    assert_eq!((response.is_new_session, response.peers), (true, 1), "{response:?}");
    let response = lamp.lease(&name("lamp"), &ask(2, Vec::new())).unwrap();
    assert_eq!(
        response.events.iter().map(|event| event.object).collect::<Vec<_>>(),
        [ObjectId(2)],
        "{response:?}"
    );
    let response = desk.lease(&name("desk"), &ask(1, Vec::new())).unwrap();
    assert_eq!((response.is_new_session, response.peers), (false, 1), "{response:?}");
}

#[test]
fn only_a_gateway_speaks_for_others_and_for_none_of_this_one() {
    let front = Served::new();
    let _own = front.client(Role::Write, "desk");
    let branch = behind(place_of(&front, Role::Gateway, "branch"), "127.0.0.1:0");
    let (desk, _) = branch.client(Role::Write, "desk");
    let denied = desk.commit(&name("desk"), 1, &[make(2, b"a")]).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("both here and")), "{denied}");
    // The gateway's own name is also taken.
    let (twin, _) = branch.client(Role::Write, "branch");
    let denied = twin.commit(&name("branch"), 1, &[make(2, b"a")]).unwrap_err();
    assert!(matches!(&denied, StoreError::Denied(why) if why.contains("both here and")), "{denied}");
    let (lamp, _) = branch.client(Role::Write, "lamp");
    lamp.commit(&name("lamp"), 2, &[make(3, b"b")]).unwrap();
    for role in [Role::Admin, Role::Read] {
        front.book.set_role(&name("branch"), role).unwrap();
        // Even after the node is known: the gateway does not commit a node's changes under its own name.
        let _ = lamp.head();
        let log = front.volume.meta.log_since(Seq(0), 10).unwrap();
        let denied = lamp.commit(&name("lamp"), 3, &[make(4, b"c")]);
        assert!(matches!(&denied, Err(StoreError::Denied(_))), "{denied:?}");
        assert_eq!(front.volume.meta.log_since(Seq(0), 10).unwrap(), log);
    }
}

/// Two gateways that lead only to each other report that at once.
#[test]
fn no_request_goes_round() {
    let front = Served::new();
    let (place, file) = place_of(&front, Role::Gateway, "branch");
    let branch = behind((place, file.clone()), "127.0.0.1:0");
    let (desk, _) = branch.client(Role::Write, "desk");
    desk.head().unwrap();
    let back = branch.place.path().join("back");
    branch.join(&branch.token(Role::Gateway, MINUTE), "front").unwrap().save(&back).unwrap();
    let Served { address: front_address, serving, place: front_place, .. } = front;
    let Served { address: branch_address, serving: branch_serving, place: branch_place, .. } = branch;
    serving.stop().unwrap();
    branch_serving.stop().unwrap();
    assert_eq!(Credentials::load(&file).unwrap().address, front_address.to_string());

    let _front = behind((front_place, back), &front_address.to_string());
    let _branch = behind((branch_place, file), &branch_address.to_string());
    let begun = Instant::now();
    let lost = desk.head().unwrap_err();
    assert!(matches!(&lost, StoreError::Unreachable(why) if why.contains("does not know")), "{lost}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// A gateway whose path leads back to itself through another gateway.
#[test]
fn a_gateway_finds_itself_on_its_way() {
    let front = Served::new();
    let branch = behind(place_of(&front, Role::Gateway, "branch"), "127.0.0.1:0");
    let (desk, _) = branch.client(Role::Write, "desk");
    desk.head().unwrap();
    let (own, _) = front.client(Role::Write, "own");
    let back = branch.place.path().join("back");
    branch.join(&branch.token(Role::Gateway, MINUTE), "front").unwrap().save(&back).unwrap();
    let Served { address, serving, place, .. } = front;
    serving.stop().unwrap();
    let _front = behind((place, back), &address.to_string());
    for lost in [own.head().unwrap_err(), desk.head().unwrap_err()] {
        assert!(matches!(&lost, StoreError::Unreachable(why) if why.contains("does not know")), "{lost}");
    }
}

/// A gateway may start before its upstream gateway.
#[test]
fn a_gateway_serves_once_the_next_one_does() {
    let front = Served::new();
    let (place, file) = place_of(&front, Role::Gateway, "branch");
    let Served { address, volume, serving, place: front_place, .. } = front;
    serving.stop().unwrap();
    let branch = behind((place, file), "127.0.0.1:0");
    let (desk, _) = branch.client(Role::Write, "desk");
    assert!(matches!(desk.head(), Err(StoreError::Unreachable(_))));
    let _front = Served::over(front_place, volume, &address.to_string());
    let begun = Instant::now();
    while let Err(error) = desk.head() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
