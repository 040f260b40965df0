//! Short constructors of objects and transactions.

use shunt_volume::id::{NodeName, ObjectId, OwnerId, Seq};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time};
use shunt_volume::store::{MetaStore, Mutation, Precondition, Rejected, Transaction};

pub const ROOT: ObjectId = ObjectId::ROOT;

pub fn id(n: u128) -> ObjectId {
    ObjectId(n)
}

pub fn object(n: u128, kind: Kind) -> Object {
    Object {
        id: id(n),
        kind,
        mode: 0o644,
        owner: OwnerId(7),
        group: OwnerId(8),
        modified: Time(1_000),
        target: if kind == Kind::Symlink { b"there".to_vec() } else { Vec::new() },
        content: Content::empty(),
        xattrs: Default::default(),
    }
}

pub fn at(parent: ObjectId, name: &str) -> LinkName {
    LinkName { parent, name: name.as_bytes().to_vec() }
}

pub fn make(n: u128, kind: Kind, parent: ObjectId, name: &str) -> Transaction {
    change([Mutation::Make(object(n, kind)), Mutation::Link(at(parent, name), id(n))])
}

pub fn change<const N: usize>(change: [Mutation; N]) -> Transaction {
    Transaction { mutations: change.into(), ..Transaction::default() }
}

pub fn when<const N: usize>(when: [Precondition; N], mut item: Transaction) -> Transaction {
    item.preconditions.extend(when);
    item
}

pub fn node(name: &str) -> NodeName {
    name.parse().unwrap()
}

/// Commits under a fresh token.
pub fn commit(store: &dyn MetaStore, items: &[Transaction]) -> Vec<Result<Seq, Rejected>> {
    store.commit(&node("one"), rand::random(), items).unwrap()
}

/// Commits one item that has to be accepted.
pub fn done(store: &dyn MetaStore, item: Transaction) -> Seq {
    commit(store, &[item]).remove(0).unwrap()
}

/// Commits one item that has to be refused.
pub fn refused(store: &dyn MetaStore, item: Transaction) -> Rejected {
    let head = store.head().unwrap();
    let refused = commit(store, &[item]).remove(0).unwrap_err();
    assert_eq!(store.head().unwrap(), head, "nothing of it is done");
    refused
}
