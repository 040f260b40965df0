//! Requirements on every store engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shunt_volume::id::{ObjectId, OwnerId, Seq};
use shunt_volume::object::{ChunkId, Content, Field, Kind, Layout, Segment, Time};
use shunt_volume::store::admin::StoreAdmin;
use shunt_volume::store::gc_lock::MovedChunk;
use shunt_volume::store::{ChunkLocation, Mutation, Precondition, Rejected, StoreError, Transaction};

use crate::store::builders::*;

type Store = Arc<dyn StoreAdmin>;

pub fn begins_with_the_top_directory(store: &Store) {
    assert_eq!(store.head().unwrap(), Seq(0));
    let root = store.get(&[ROOT, id(2)]).unwrap();
    assert_eq!(root[0].as_ref().unwrap().object.kind, Kind::Directory);
    assert_eq!(root[0].as_ref().unwrap().created, Seq(0));
    assert_eq!(root[1], None);
    assert_eq!(store.log_since(Seq(0), 10).unwrap(), []);
}

pub fn numbers_commits_without_gaps(store: &Store) {
    let items: Vec<_> = (0..20)
        .map(|n| match n % 4 {
            3 => make(100, Kind::Regular, id(99), "nowhere"),
            _ => make(10 + n, Kind::Regular, ROOT, &format!("f{n}")),
        })
        .collect();
    let answers = commit(&**store, &items);
    let accepted: Vec<u64> = answers.iter().flatten().map(|seq| seq.0).collect();
    assert_eq!(accepted, (1..=15).collect::<Vec<_>>());
    let log = store.log_since(Seq(0), 100).unwrap();
    assert_eq!(log.iter().map(|entry| entry.seq.0).collect::<Vec<_>>(), accepted);
    assert_eq!(store.log_since(Seq(3), 2).unwrap(), log[3..5]);
    assert_eq!(store.log_since(Seq(15), 2).unwrap(), []);
    assert_eq!(store.head().unwrap(), Seq(15));
}

pub fn forgets_the_beginning_of_the_log(store: &Store) {
    let items: Vec<_> = (0..10).map(|n| make(10 + n, Kind::Regular, ROOT, &format!("f{n}"))).collect();
    commit(&**store, &items);
    let log = store.log_since(Seq(0), 100).unwrap();
    let (always, never) = (Time(i64::MAX), Time(0));
    assert_eq!(store.truncate_log(never, 0).unwrap(), Seq(0));
    assert_eq!(store.truncate_log(always, 100).unwrap(), Seq(0));
    assert_eq!(store.truncate_log(always, 7).unwrap(), Seq(3));
    assert!(matches!(store.log_since(Seq(2), 1), Err(StoreError::Forgotten(Seq(2)))));
    assert_eq!(store.log_since(Seq(3), 100).unwrap(), log[3..]);
    // Young entries stay, and forgotten ones do not return.
    assert_eq!(
        store.truncate_log(log[6].at, 0).unwrap().0.max(3),
        log.partition_point(|one| one.at < log[6].at).max(3) as u64
    );
    assert_eq!(store.truncate_log(always, 9).unwrap(), store.truncated_up_to().unwrap());
    assert_eq!(store.truncate_log(always, 0).unwrap(), Seq(10));
    assert_eq!((store.head().unwrap(), store.truncated_up_to().unwrap()), (Seq(10), Seq(10)));
    assert_eq!(store.log_since(Seq(10), 1).unwrap(), []);
    done(&**store, make(30, Kind::Regular, ROOT, "next"));
    assert_eq!(store.log_since(Seq(10), 5).unwrap()[0].seq, Seq(11));
}

pub fn tells_what_was_committed(store: &Store) {
    let item = make(5, Kind::Character(4, 64), ROOT, "tty");
    store.commit(&node("laptop"), 1, std::slice::from_ref(&item)).unwrap();
    let entry = store.log_since(Seq(0), 10).unwrap().remove(0);
    assert_eq!((entry.node, entry.change), (node("laptop"), item.mutations));
    assert!(entry.at > Time(1_600_000_000_000_000_000), "{:?}", entry.at);
    let stored = store.get(&[id(5)]).unwrap().remove(0).unwrap();
    assert_eq!((stored.object.kind, stored.links, stored.created), (Kind::Character(4, 64), 1, Seq(1)));
}

pub fn accepts_items_one_by_one(store: &Store) {
    let items = [
        make(2, Kind::Directory, ROOT, "d"),
        make(3, Kind::Regular, ROOT, "d"),
        make(3, Kind::Regular, ROOT, "f"),
    ];
    let answers = commit(&**store, &items);
    assert_eq!(answers[0], Ok(Seq(1)));
    assert!(matches!(answers[1], Err(Rejected::Invalid(1, _))), "{answers:?}");
    assert_eq!(answers[2], Ok(Seq(2)));
}

pub fn checks_preconditions(store: &Store) {
    let link = |child, seq| Precondition::Link(at(ROOT, "f"), Some((id(child), Seq(seq))));
    let none = || Precondition::Link(at(ROOT, "f"), None);
    let mode = |seq| Precondition::Field(id(2), Field::Mode, Seq(seq));
    let set = || change([Mutation::SetMode(id(2), 0o600)]);

    assert_eq!(refused(&**store, when([Precondition::Exists(id(2))], set())), Rejected::Stale(0));
    assert_eq!(refused(&**store, when([mode(0)], set())), Rejected::Stale(0));
    done(&**store, when([none()], make(2, Kind::Regular, ROOT, "f")));
    assert_eq!(refused(&**store, when([none()], make(3, Kind::Regular, ROOT, "f"))), Rejected::Stale(0));

    let both = [Precondition::Exists(id(2)), mode(1), link(2, 1)];
    assert_eq!(done(&**store, when(both, set())), Seq(2));
    assert_eq!(refused(&**store, when([link(2, 1), mode(1)], set())), Rejected::Stale(1));
    assert_eq!(refused(&**store, when([link(2, 2)], set())), Rejected::Stale(0));
    assert_eq!(refused(&**store, when([link(3, 1)], set())), Rejected::Stale(0));
    // Other fields have the version of the creation.
    let owner = Precondition::Field(id(2), Field::Owner, Seq(1));
    let other = Precondition::Field(id(2), Field::Xattr(b"user.a".to_vec()), Seq(1));
    assert_eq!(done(&**store, when([mode(2), owner, other], set())), Seq(3));

    assert_eq!(refused(&**store, when([Precondition::Empty(ROOT)], set())), Rejected::Stale(0));
    assert_eq!(refused(&**store, when([Precondition::Empty(id(2))], set())), Rejected::Stale(0));
    done(&**store, make(4, Kind::Directory, ROOT, "d"));
    done(&**store, when([Precondition::Empty(id(4))], set()));
}

pub fn sees_earlier_items_of_a_batch(store: &Store) {
    let items = [
        make(2, Kind::Directory, ROOT, "d"),
        make(3, Kind::Regular, id(2), "f"),
        when([Precondition::Field(id(3), Field::Mode, Seq(2))], change([Mutation::SetMode(id(3), 0o600)])),
        when([Precondition::Field(id(3), Field::Mode, Seq(2))], change([Mutation::SetMode(id(3), 0o640)])),
        when([Precondition::Empty(id(2))], change([Mutation::Unlink(at(ROOT, "d"))])),
        change([Mutation::Unlink(at(id(2), "f"))]),
        when([Precondition::Empty(id(2))], change([Mutation::Unlink(at(ROOT, "d"))])),
    ];
    let answers = commit(&**store, &items);
    let expected = [
        Ok(Seq(1)),
        Ok(Seq(2)),
        Ok(Seq(3)),
        Err(Rejected::Stale(0)),
        Err(Rejected::Stale(0)),
        Ok(Seq(4)),
        Ok(Seq(5)),
    ];
    assert_eq!(answers, expected);
    assert_eq!(store.get(&[id(2), id(3)]).unwrap(), [None, None]);
}

pub fn takes_back_what_was_begun(store: &Store) {
    done(&**store, make(2, Kind::Directory, ROOT, "d"));
    done(&**store, make(3, Kind::Regular, id(2), "f"));
    let before = store.scan(ROOT, 100).unwrap();
    let half = change([
        Mutation::SetMode(id(2), 0),
        Mutation::Unlink(at(id(2), "f")),
        Mutation::Link(at(ROOT, "g"), id(3)),
        Mutation::Make(object(4, Kind::Regular)),
        Mutation::Link(at(ROOT, "h"), id(4)),
        Mutation::Unlink(at(ROOT, "nothing")),
    ]);
    // The second one is checked against the state after the first one was rejected, in the same batch.
    let answers = commit(&**store, &[half.clone(), half]);
    assert!(answers.iter().all(|answer| matches!(answer, Err(Rejected::Invalid(5, _)))), "{answers:?}");
    assert_eq!(store.scan(ROOT, 100).unwrap(), before);
}

pub fn refuses_cycles(store: &Store) {
    for (n, parent) in [(2, ROOT), (3, id(2)), (4, id(3)), (5, ROOT)] {
        done(&**store, make(n, Kind::Directory, parent, &format!("d{n}")));
    }
    let mv = |from, name: &str, to, n| {
        change([Mutation::Unlink(at(from, name)), Mutation::Link(at(to, name), id(n))])
    };
    assert_eq!(refused(&**store, mv(ROOT, "d2", id(4), 2)), Rejected::Cycle);
    assert_eq!(refused(&**store, mv(ROOT, "d2", id(2), 2)), Rejected::Cycle);
    // Each of the two alone is valid, but not the second one after the first. In one batch and in two.
    done(&**store, make(6, Kind::Directory, id(5), "d6"));
    let answers = commit(&**store, &[mv(ROOT, "d2", id(6), 2), mv(ROOT, "d5", id(4), 5)]);
    assert!(answers[0].is_ok(), "{answers:?}");
    assert_eq!(answers[1], Err(Rejected::Cycle));
    assert_eq!(refused(&**store, mv(ROOT, "d5", id(3), 5)), Rejected::Cycle);
    done(&**store, mv(id(2), "d3", ROOT, 3));
    // Two directories that one transaction moves into each other.
    let both = change([
        Mutation::Unlink(at(id(3), "d4")),
        Mutation::Unlink(at(ROOT, "d3")),
        Mutation::Link(at(id(4), "d3"), id(3)),
        Mutation::Link(at(id(3), "d4"), id(4)),
    ]);
    assert_eq!(refused(&**store, both), Rejected::Cycle);
}

pub fn counts_links(store: &Store) {
    let links = || store.get(&[id(2)]).unwrap()[0].as_ref().map(|stored| stored.links);
    done(&**store, make(2, Kind::Regular, ROOT, "a"));
    done(&**store, change([Mutation::Link(at(ROOT, "b"), id(2)), Mutation::Link(at(ROOT, "c"), id(2))]));
    assert_eq!(links(), Some(3));
    done(&**store, change([Mutation::Unlink(at(ROOT, "b"))]));
    assert_eq!(links(), Some(2));
    // A directory has one name.
    done(&**store, make(3, Kind::Directory, ROOT, "d"));
    let second = refused(&**store, change([Mutation::Link(at(ROOT, "e"), id(3))]));
    assert!(matches!(second, Rejected::Invalid(0, _)));
    done(&**store, change([Mutation::Unlink(at(ROOT, "d")), Mutation::Link(at(ROOT, "e"), id(3))]));
}

pub fn loses_objects_without_names(store: &Store) {
    done(&**store, make(2, Kind::Regular, ROOT, "a"));
    done(&**store, change([Mutation::Unlink(at(ROOT, "a")), Mutation::Link(at(ROOT, "b"), id(2))]));
    assert!(store.get(&[id(2)]).unwrap()[0].is_some(), "it had a name at the end");
    done(&**store, change([Mutation::Unlink(at(ROOT, "b"))]));
    assert_eq!(store.get(&[id(2)]).unwrap(), [None]);
    assert!(matches!(refused(&**store, change([Mutation::SetMode(id(2), 0)])), Rejected::Invalid(0, _)));
    done(&**store, change([Mutation::Make(object(3, Kind::Fifo))]));
    assert_eq!(store.get(&[id(3)]).unwrap(), [None], "it was never given a name");
}

pub fn keeps_directories_that_hold_names(store: &Store) {
    done(&**store, make(2, Kind::Directory, ROOT, "d"));
    done(&**store, make(3, Kind::Regular, id(2), "f"));
    let gone = || Mutation::Unlink(at(ROOT, "d"));
    assert!(matches!(refused(&**store, change([gone()])), Rejected::Invalid(0, _)));
    // Together with its contents, in one transaction, in this order too.
    done(&**store, change([gone(), Mutation::Unlink(at(id(2), "f"))]));
    let page = store.scan(ObjectId(0), 10).unwrap();
    assert_eq!((page.objects.len(), page.links.len()), (1, 0));
    let below = refused(&**store, make(4, Kind::Regular, id(2), "g"));
    assert!(matches!(below, Rejected::Invalid(1, _)), "{below:?}");
}

pub fn sets_each_field_by_itself(store: &Store) {
    done(&**store, make(2, Kind::Regular, ROOT, "f"));
    let name = b"user.a".to_vec();
    let content = Content { size: 3, digest: [9; 32], layout: Layout::Inline(b"abc".to_vec()) };
    let changes = [
        (Mutation::SetContent(id(2), content.clone(), Time(5)), Field::Content),
        (Mutation::SetMode(id(2), 0o4755), Field::Mode),
        (Mutation::SetOwner(id(2), OwnerId(1)), Field::Owner),
        (Mutation::SetGroup(id(2), OwnerId(2)), Field::Group),
        (Mutation::SetModified(id(2), Time(-6)), Field::Modified),
        (Mutation::SetXattr(id(2), name.clone(), Some(b"x".to_vec())), Field::Xattr(name.clone())),
    ];
    for (mutation, field) in changes {
        let before = store.get(&[id(2)]).unwrap().remove(0).unwrap();
        let seq = done(&**store, change([mutation]));
        let after = store.get(&[id(2)]).unwrap().remove(0).unwrap();
        assert_eq!(after.seq_of(&field), seq);
        for other in [Field::Content, Field::Mode, Field::Owner, Field::Group] {
            assert!(other == field || after.seq_of(&other) == before.seq_of(&other));
        }
    }
    let object = store.get(&[id(2)]).unwrap().remove(0).unwrap().object;
    assert_eq!(object.content, content);
    assert_eq!((object.mode, object.owner, object.group), (0o4755, OwnerId(1), OwnerId(2)));
    assert_eq!(object.modified, Time(-6));
    assert_eq!(object.xattrs[&name], b"x");
    let seq = done(&**store, change([Mutation::SetXattr(id(2), name.clone(), None)]));
    let stored = store.get(&[id(2)]).unwrap().remove(0).unwrap();
    assert_eq!((stored.object.xattrs.len(), stored.seq_of(&Field::Xattr(name))), (0, seq));
}

pub fn answers_a_token_once(store: &Store) {
    let items = [make(2, Kind::Regular, ROOT, "a"), make(2, Kind::Regular, ROOT, "b")];
    let first = store.commit(&node("one"), 42, &items).unwrap();
    assert_eq!(store.commit(&node("one"), 42, &items).unwrap(), first);
    assert_eq!(store.head().unwrap(), Seq(1));
    // From another node it is another batch.
    let second = store.commit(&node("two"), 42, &items).unwrap();
    assert!(second.iter().all(Result::is_err), "{second:?}");
    assert_eq!(store.commit(&node("two"), 42, &items).unwrap(), second);
}

pub fn refuses_values_that_make_no_sense(store: &Store) {
    done(&**store, make(2, Kind::Regular, ROOT, "f"));
    done(&**store, make(3, Kind::Symlink, ROOT, "l"));
    let chunk = |length| Segment::Chunk { id: ChunkId([1; 32]), length };
    let content =
        |size, layout| Mutation::SetContent(id(2), Content { size, digest: [0; 32], layout }, Time(0));
    let target = |target: &[u8], kind| {
        Mutation::Make(shunt_volume::object::Object { target: target.to_vec(), ..object(9, kind) })
    };
    let wrong = [
        Mutation::Link(at(ROOT, ""), id(2)),
        Mutation::Link(at(ROOT, "."), id(2)),
        Mutation::Link(at(ROOT, ".."), id(2)),
        Mutation::Link(at(ROOT, "a/b"), id(2)),
        Mutation::Link(at(ROOT, "a\0b"), id(2)),
        Mutation::Link(at(ROOT, &"n".repeat(395)), id(2)),
        Mutation::Link(at(ROOT, "loop"), ROOT),
        Mutation::Link(at(id(2), "below"), id(3)),
        Mutation::Unlink(at(ROOT, "nothing")),
        Mutation::SetMode(id(2), 0o10000),
        Mutation::SetXattr(id(2), vec![], None),
        Mutation::SetXattr(id(2), vec![b'n'; 395], None),
        Mutation::SetXattr(id(2), b"user.a".to_vec(), Some(vec![0; 65_577])),
        Mutation::Make(object(2, Kind::Regular)),
        target(b"", Kind::Symlink),
        target(b"there", Kind::Regular),
        target(&[b't'; 5515], Kind::Symlink),
        Mutation::SetContent(id(3), Content::empty(), Time(0)),
        content(2, Layout::Inline(vec![1])),
        content(5000, Layout::Inline(vec![1; 5000])),
        content(9, Layout::Direct(vec![chunk(8)])),
        content(0, Layout::Direct(vec![Segment::Hole { length: 0 }])),
        content(1, Layout::Direct(vec![Segment::Hole { length: u64::MAX }, Segment::Hole { length: 2 }])),
        content(u64::MAX, Layout::Direct(vec![Segment::Hole { length: u64::MAX }])),
        content(9, Layout::Indirect(vec![Segment::Hole { length: 9 }])),
    ];
    for mutation in wrong {
        let answer = refused(&**store, change([mutation.clone()]));
        assert!(matches!(answer, Rejected::Invalid(0, _)), "{mutation:?}: {answer:?}");
    }
}

pub fn refuses_what_no_message_has_room_for(store: &Store) {
    let xattr = |n: usize| Mutation::SetXattr(id(2), format!("user.{n}").into_bytes(), Some(vec![7; 65_536]));
    let mut whole = make(2, Kind::Regular, ROOT, "f");
    whole.mutations.extend((0..63).map(xattr));
    done(&**store, whole);
    let answer = refused(&**store, change([Mutation::SetMode(id(2), 0o600), xattr(63)]));
    assert!(matches!(&answer, Rejected::Invalid(1, why) if why.contains("4 MiB")), "{answer:?}");
    // One attribute replaces another.
    done(&**store, change([Mutation::SetXattr(id(2), b"user.0".to_vec(), None), xattr(63)]));
    let mut object = object(3, Kind::Regular);
    object.xattrs = (0..64).map(|n| (format!("user.{n}").into_bytes(), vec![7; 65_536])).collect();
    let answer = refused(&**store, change([Mutation::Make(object), Mutation::Link(at(ROOT, "g"), id(3))]));
    assert!(matches!(&answer, Rejected::Invalid(0, why) if why.contains("4 MiB")), "{answer:?}");
    // Of many objects, more than a gateway's message holds.
    let mut many = Transaction::default();
    for n in 10..460 {
        many.mutations.extend(make(n, Kind::Regular, ROOT, &format!("f{n}")).mutations);
        many.mutations.push(Mutation::SetXattr(id(n), b"user.a".to_vec(), Some(vec![7; 65_536])));
    }
    let answer = refused(&**store, many.clone());
    assert!(matches!(&answer, Rejected::Invalid(0, why) if why.contains("one message")), "{answer:?}");
    many.mutations.truncate(3 * 440);
    done(&**store, many);
}

pub fn scans_in_pages(store: &Store) {
    let items: Vec<_> = (2..40).map(|n| make(n * 1000, Kind::Regular, ROOT, &format!("f{n}"))).collect();
    commit(&**store, &items);
    done(&**store, make(u128::MAX, Kind::Directory, ROOT, "last"));
    done(&**store, make(5, Kind::Regular, id(u128::MAX), "in last"));
    let (mut from, mut objects, mut links, mut pages) = (ObjectId(0), Vec::new(), Vec::new(), 0);
    loop {
        let page = store.scan(from, 7).unwrap();
        assert!(page.objects.len() <= 7);
        objects.extend(page.objects.iter().map(|stored| stored.object.id));
        links.extend(page.links);
        pages += 1;
        match page.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!((objects.len(), links.len(), pages), (41, 40, 6));
    assert!(objects.is_sorted());
    assert!(links.iter().any(|link| link.at == at(id(u128::MAX), "in last") && link.child == id(5)));
}

pub fn knows_places(store: &Store) {
    let place = |key: &str| ChunkLocation { key: key.into(), offset: 1 << 40, stored: 10, length: u32::MAX };
    let mut item = make(2, Kind::Regular, ROOT, "f");
    item.chunks = vec![(ChunkId([1; 32]), place("a")), (ChunkId([2; 32]), place("b"))];
    let mut other = make(2, Kind::Regular, ROOT, "refused");
    other.chunks = vec![(ChunkId([3; 32]), place("c"))];
    commit(&**store, &[item, other]);
    let mut again = make(3, Kind::Regular, ROOT, "again");
    again.chunks = vec![(ChunkId([1; 32]), place("another"))];
    done(&**store, again);
    let known = store.locate_chunks(&[ChunkId([2; 32]), ChunkId([3; 32]), ChunkId([1; 32])]).unwrap();
    assert_eq!(
        known,
        [Some(place("b")), Some(place("c")), Some(place("a"))],
        "also those of what was refused"
    );
    assert_eq!(store.locate_chunks(&[ChunkId([4; 32])]).unwrap(), [None]);
}

pub fn moves_chunks_that_are_where_they_were(store: &Store) {
    let chunk = |n| ChunkId([n; 32]);
    let place = |key: &str, offset| ChunkLocation { key: key.into(), offset, stored: 10, length: u32::MAX };
    let mut item = make(2, Kind::Regular, ROOT, "f");
    item.chunks = (1..6).map(|n| (chunk(n), place("old", n.into()))).collect();
    done(&**store, item);
    let condemned = Time(7);
    store.mark_for_deletion(&[chunk(2), chunk(3)], condemned).unwrap();
    // Uploaded again in between, and so located elsewhere.
    let mut again = make(3, Kind::Regular, ROOT, "again");
    again.chunks = vec![(chunk(3), place("again", 0))];
    done(&**store, again);
    let moved: Vec<MovedChunk> = [1, 2, 3, 4, 9]
        .into_iter()
        .map(|n: u8| {
            // One is requested from a location where it never was.
            let from = place("old", if n == 4 { 40 } else { n.into() });
            MovedChunk { id: chunk(n), from, to: place("new", 1 << 40 | u64::from(n)) }
        })
        .collect();
    let (late, turn) = (store.acquire_gc_lock().unwrap(), store.acquire_gc_lock().unwrap());
    assert_eq!(store.move_chunks(late, &moved).unwrap(), None);
    assert_eq!(store.setting("gc.moves").unwrap(), None);
    assert_eq!(store.locate_chunks(&[chunk(1)]).unwrap(), [Some(place("old", 1))]);
    assert_eq!(store.move_chunks(turn, &moved).unwrap(), Some(2));
    let there = store.scan_chunks(ChunkId([0; 32]), 99).unwrap();
    let there: Vec<_> = there.into_iter().map(|(_, chunk)| (chunk.location, chunk.marked_at)).collect();
    let expected = [
        (place("new", 1 << 40 | 1), None),
        (place("new", 1 << 40 | 2), Some(condemned)),
        (place("again", 0), None),
        (place("old", 4), None),
        (place("old", 5), None),
    ];
    assert_eq!(there, expected);
    assert_eq!(store.move_chunks(turn, &moved).unwrap(), Some(0));
    assert_eq!(store.setting("gc.moves").unwrap().as_deref(), Some("2"));
}

pub fn sets_in_turn(store: &Store) {
    let set = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
    let late = store.acquire_gc_lock().unwrap();
    assert!(
        store
            .set_fenced(late, &[set("a.1", Some("x")), set("b%1", Some("")), set("a_1", Some("z"))])
            .unwrap()
    );
    let turn = store.acquire_gc_lock().unwrap();
    assert!(turn > late);
    assert!(!store.set_fenced(late, &[set("a.1", Some("y")), set("b%1", None)]).unwrap());
    assert!(!store.set_fenced(late, &[]).unwrap() && store.set_fenced(turn, &[]).unwrap());
    assert!(store.set_fenced(turn, &[set("a.1", None), set("a.2", Some("y")), set("none", None)]).unwrap());
    assert_eq!(store.settings("a.").unwrap(), [("a.2".to_owned(), "y".to_owned())]);
    assert_eq!(store.settings("b%").unwrap(), [("b%1".to_owned(), String::new())]);
    assert_eq!(store.settings("A").unwrap(), []);
}

pub fn lets_committers_meet(store: &Store) {
    done(&**store, make(2, Kind::Regular, ROOT, "f"));
    // All threads compete to set the mode; each states the version it was based on.
    let won: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4u128)
            .map(|worker| {
                scope.spawn(move || {
                    let name = node(&format!("n{worker}"));
                    let mut won = 0;
                    for n in 0..25 {
                        let base = store.get(&[id(2)]).unwrap()[0].as_ref().unwrap().seq_of(&Field::Mode);
                        let set = when(
                            [Precondition::Field(id(2), Field::Mode, base)],
                            change([Mutation::SetMode(id(2), worker as u16)]),
                        );
                        let own =
                            make(1000 + worker * 100 + n, Kind::Regular, ROOT, &format!("{worker}-{n}"));
                        let answers = store.commit(&name, n, &[set, own]).unwrap();
                        assert!(answers[1].is_ok(), "{answers:?}");
                        won += usize::from(answers[0].is_ok());
                    }
                    won
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert!(won >= 25, "somebody always wins: {won}");
    let log = store.log_since(Seq(0), 1000).unwrap();
    assert!(log.iter().zip(1..).all(|(entry, n)| entry.seq == Seq(n)), "without gaps");
    assert_eq!(log.len(), 1 + 100 + won);
}

pub fn wakes_who_waits(store: &Store) {
    assert!(!store.wait(Seq(0), Duration::from_millis(30)).unwrap());
    let waiter = store.clone();
    let begun = Instant::now();
    let waiting = std::thread::spawn(move || waiter.wait(Seq(0), Duration::from_secs(20)).unwrap());
    std::thread::sleep(Duration::from_millis(50));
    let item: Transaction = make(2, Kind::Regular, ROOT, "f");
    done(&**store, item);
    assert!(waiting.join().unwrap());
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(store.wait(Seq(0), Duration::from_secs(20)).unwrap());
}
