//! Property tests: attributes are set and removed at random and compared with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::change::{Changed, Room, split_name};
use super::*;
use crate::error::Error;

/// Encodes and decodes the lists, like writing and reading an inode and its block.
fn reread(lists: &Lists, room: Room) -> Lists {
    let tail = lists.encode_tail(room.own);
    let block = lists.encode_block(room.block);
    assert_eq!((tail.len(), block.as_ref().map_or(room.block, Vec::len)), (room.own, room.block));
    Lists::decode(&tail, block.as_deref()).unwrap()
}

fn all(lists: &Lists) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let list = lists.own.iter().chain(&lists.block).cloned();
    list.map(|Attribute { index, name, value }| ((index, name), value)).collect()
}

proptest! {
    #[test]
    fn do_as_a_map_does(
        steps in prop::collection::vec(
            (
                prop_oneof![Just(1_u8), Just(4), Just(6)],
                prop_oneof![4 => "[a-c]{1,3}", 1 => "[a-z]{200,255}"],
                prop::option::weighted(0.8, prop_oneof![4 => 0..60_usize, 1 => 0..1200_usize]),
            ),
            1..80,
        ),
        own in prop_oneof![Just(0_usize), Just(96), Just(352)],
        block in prop_oneof![Just(1024_usize), Just(4096)],
    ) {
        let room = Room { own, block };
        let mut lists = Lists::default();
        let mut model = BTreeMap::new();
        for (number, (index, name, length)) in steps.into_iter().enumerate() {
            let name = name.into_bytes();
            let key = (index, name.clone());
            let before = lists.clone();
            match length {
                Some(length) => {
                    let value = vec![number as u8; length];
                    let attribute = Attribute { index, name, value: value.clone() };
                    match lists.set(attribute, SetMode::Either, room) {
                        Ok(_) => drop(model.insert(key, value)),
                        Err(Error::NoSpace) => prop_assert_eq!(&lists, &before),
                        Err(error) => panic!("{error}"),
                    }
                }
                None => prop_assert_eq!(lists.remove(index, &name).is_ok(), model.remove(&key).is_some()),
            }
            lists = reread(&lists, room);
        }
        prop_assert_eq!(all(&lists), model);
    }
}

#[test]
fn set_mode_is_honoured() {
    let room = Room { own: 96, block: 1024 };
    let mut lists = Lists::default();
    let new = |value: &[u8]| Attribute { index: 1, name: b"a".to_vec(), value: value.to_vec() };
    assert!(matches!(lists.set(new(b"1"), SetMode::Replace, room), Err(Error::NoAttribute)));
    assert_eq!(lists.set(new(b"1"), SetMode::Create, room).unwrap(), Changed { own: true, block: false });
    assert!(matches!(lists.set(new(b"2"), SetMode::Create, room), Err(Error::Exists)));
    assert_eq!(lists.set(new(b"1"), SetMode::Replace, room).unwrap(), Changed::default());
    // A value too long for the inode moves to a block, and back.
    assert_eq!(
        lists.set(new(&[3; 500]), SetMode::Replace, room).unwrap(),
        Changed { own: true, block: true }
    );
    assert!(lists.own.is_empty());
    assert_eq!(lists.set(new(b"2"), SetMode::Either, room).unwrap(), Changed { own: true, block: true });
    assert!(lists.block.is_empty());
    assert!(matches!(lists.set(new(&[3; 1000]), SetMode::Either, room), Err(Error::NoSpace)));
    assert!(matches!(lists.set(new(&[3; 70_000]), SetMode::Either, room), Err(Error::TooBig)));
    assert_eq!(lists.get(1, b"a"), Some(&b"2"[..]));
}

#[test]
fn names_require_a_namespace() {
    assert_eq!(split_name(b"user.x").unwrap(), (1, &b"x"[..]));
    assert_eq!(split_name(b"system.posix_acl_default").unwrap(), (3, &b""[..]));
    assert_eq!(split_name(b"security.capability").unwrap(), (6, &b"capability"[..]));
    for refused in ["system.data", "system.posix_acl_access2", "x", "encryption.c", "system.richacl"] {
        assert!(matches!(split_name(refused.as_bytes()), Err(Error::Unsupported(_))), "{refused}");
    }
    assert!(matches!(split_name(b"user."), Err(Error::Invalid)));
    assert!(split_name(&[b"user.".to_vec(), vec![b'x'; 255]].concat()).is_ok());
    assert!(matches!(split_name(&[b"user.".to_vec(), vec![b'x'; 256]].concat()), Err(Error::OutOfRange)));
}
