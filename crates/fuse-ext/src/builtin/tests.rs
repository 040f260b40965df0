//! Tests of the tables without a kernel: an entry is valid exactly until its version changes.

use bytemuck::Zeroable;
use shunt_fuse::{Attributes, NodeId};

use super::*;

const NODE: NodeId = NodeId(7);

fn attributes(size: u64) -> Attributes {
    Attributes { ino: 7, size, mode: 0o100_644, nlink: 1, ..Attributes::default() }
}

/// Returns what the program would reply.
fn stored(tables: &Tables) -> Option<u64> {
    let like = AttrSlot { node: NODE.0, ..AttrSlot::zeroed() };
    let found = tables.attrs.find(key(NODE), &like)?;
    (found.version == tables.attributes_version(NODE).0).then_some(found.attr.size)
}

fn name_believed(tables: &Tables, name: &[u8]) -> Option<u64> {
    let name = padded(name)?;
    let hash = hash_words(1, &name);
    let like = NameSlot { parent: 1, name, version: 0, life: 0, node: 0, generation: 0 };
    let found = tables.names.find(hash, &like)?;
    (found.version == tables.versions.now(Domain::Name as u64, hash).0).then_some(found.node)
}

#[test]
fn slots_are_as_large_as_in_the_program() {
    assert_eq!(Table::<AttrSlot>::WORDS * 8, 136);
    assert_eq!(Table::<NameSlot>::WORDS * 8, 88);
    assert_eq!(Table::<XattrSlot>::WORDS * 8, 128);
    assert_eq!(Table::<LinkSlot>::WORDS * 8, 256);
    assert_eq!(Table::<ListSlot>::WORDS * 8, 128);
    assert_eq!(Table::<OpenSlot>::WORDS * 8, 32);
}

#[test]
fn an_answer_older_than_a_change_is_never_believed() {
    let tables = Tables::private().unwrap();
    let since = tables.attributes_version(NODE);
    tables.store_attributes(NODE, since, (&attributes(1)).into(), AttrExpiry::CHANGED);
    assert_eq!(stored(&tables), Some(1));
    tables.node_changed(NODE);
    assert_eq!(stored(&tables), None);
    // A late store: queried before the change, stored after it.
    tables.store_attributes(NODE, since, (&attributes(1)).into(), AttrExpiry::CHANGED);
    assert_eq!(stored(&tables), None);
    tables.store_attributes(
        NODE,
        tables.attributes_version(NODE),
        (&attributes(2)).into(),
        AttrExpiry::CHANGED,
    );
    assert_eq!(stored(&tables), Some(2));
    tables.all_changed();
    assert_eq!(stored(&tables), None);
}

#[test]
fn lookup_result_is_stored_only_if_nothing_changed_meanwhile() {
    let tables = Tables::private().unwrap();
    let since = tables.change_count();
    tables.attributes_changed(NodeId(8));
    tables.store_found(NODE, since, attributes(1).wire().into(), AttrExpiry::CHANGED);
    assert_eq!(stored(&tables), None);
    tables.store_found(NODE, tables.change_count(), attributes(1).wire().into(), AttrExpiry::CHANGED);
    assert_eq!(stored(&tables), Some(1));
}

#[test]
fn names_change_one_by_one() {
    let tables = Tables::private().unwrap();
    let parent = NodeId(1);
    for name in [b"one".as_slice(), b"two"] {
        tables.store_name(parent, name, tables.name_version(parent, name), NODE, 0);
    }
    tables.name_changed(parent, b"one");
    assert_eq!((name_believed(&tables, b"one"), name_believed(&tables, b"two")), (None, Some(7)));
    tables.store_absent(parent, b"one", tables.name_version(parent, b"one"));
    assert_eq!(name_believed(&tables, b"one"), Some(0));
}

#[test]
fn oversized_values_are_not_stored() {
    let tables = Tables::private().unwrap();
    let long = [b'x'; NAME_BYTES];
    tables.store_absent(NodeId(1), &long, tables.name_version(NodeId(1), &long));
    tables.name_changed(NodeId(1), &long);
    tables.store_xattr(NODE, c"user.x", tables.xattr_version(NODE), Ok(&[0; XATTR_VALUE_BYTES + 1]));
    tables.store_xattr_names(NODE, true, tables.xattr_version(NODE), &[0; XATTR_LIST_BYTES + 1]);
    tables.store_link(NODE, &[b'x'; LINK_TARGET_BYTES + 1]);
    assert!(padded::<{ NAME_BYTES / 8 }>(&long).is_none());
    assert!(padded::<{ NAME_BYTES / 8 }>(&long[1..]).is_some());
}

#[test]
fn root_and_others_have_lists_of_their_own() {
    let tables = Tables::private().unwrap();
    let found = |root: bool| {
        let root = u64::from(root);
        let like = ListSlot { node: NODE.0, root, version: 0, length: 0, names: [0; XATTR_LIST_BYTES] };
        let found = tables.lists.find(hash_words(NODE.0, &[root]), &like)?;
        (found.version == tables.xattr_version(NODE).0).then_some(found.length)
    };
    tables.store_xattr_names(NODE, true, tables.xattr_version(NODE), b"trusted.x\0");
    assert_eq!((found(true), found(false)), (Some(10), None));
    tables.store_xattr_names(NODE, false, tables.xattr_version(NODE), b"");
    assert_eq!((found(true), found(false)), (Some(10), Some(0)));
    tables.node_changed(NODE);
    assert_eq!((found(true), found(false)), (None, None));
}

#[test]
fn a_reply_without_the_time_of_birth_does_not_lose_it_until_the_inode_changes() {
    let tables = Tables::private().unwrap();
    let birth = || {
        let like = AttrSlot { node: NODE.0, ..AttrSlot::zeroed() };
        let found = tables.attrs.find(key(NODE), &like).unwrap();
        (found.birth, found.btime, found.btime_nsec)
    };
    let store = |stored| {
        tables.store_attributes(NODE, tables.attributes_version(NODE), stored, AttrExpiry::CHANGED);
    };
    let born = Attributes { btime: Some(Timestamp::new(-5, 6)), ..attributes(1) };
    store(Stored::complete(&born));
    assert_eq!(birth(), (BIRTH_STORED, -5, 6));
    store(born.wire().into());
    assert_eq!(birth(), (BIRTH_STORED, -5, 6));
    tables.attributes_changed(NODE);
    store(born.wire().into());
    assert_eq!(birth(), (BIRTH_UNKNOWN, 0, 0));
    store(Stored::complete(&attributes(1)));
    assert_eq!(birth(), (BIRTH_ABSENT, 0, 0));
}
