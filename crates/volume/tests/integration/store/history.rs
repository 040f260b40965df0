//! History queries, which give the same results on all engines.

use std::sync::Arc;

use shunt_volume::id::{ObjectId, Seq};
use shunt_volume::object::{Content, Field, Kind, Layout, StoredLink, Time};
use shunt_volume::store::admin::StoreAdmin;
use shunt_volume::store::history::{History, seq_at};
use shunt_volume::store::{Mutation, system_clock};

use crate::store::builders::*;

type Store = Arc<dyn StoreAdmin>;

fn past(store: &Store) -> &dyn History {
    store.history().unwrap()
}

fn content(text: &str) -> Content {
    let bytes = text.as_bytes().to_vec();
    Content { size: bytes.len() as u64, digest: [bytes[0]; 32], layout: Layout::Inline(bytes) }
}

fn write(n: u128, text: &str) -> shunt_volume::store::Transaction {
    change([Mutation::SetContent(id(n), content(text), Time(5))])
}

fn names(links: &[StoredLink]) -> Vec<(&str, ObjectId, Seq)> {
    links.iter().map(|link| (std::str::from_utf8(&link.at.name).unwrap(), link.child, link.set)).collect()
}

pub fn keeps_what_is_superseded(store: &Store) {
    let made = done(&**store, make(2, Kind::Regular, ROOT, "a"));
    let mode = done(&**store, change([Mutation::SetMode(id(2), 0o600)]));
    let wrote = done(&**store, write(2, "one"));
    let again = done(&**store, change([Mutation::SetMode(id(2), 0o600)]));
    let moved =
        done(&**store, change([Mutation::Unlink(at(ROOT, "a")), Mutation::Link(at(ROOT, "b"), id(2))]));
    let gone = done(&**store, change([Mutation::Unlink(at(ROOT, "b"))]));
    let past = past(store);
    assert_eq!(past.complete_since().unwrap(), Seq(0));
    let seen = |seq| {
        past.object_at(id(2), seq).unwrap().map(|stored| (stored.object.mode, stored.object.content.size))
    };
    assert_eq!(seen(Seq(0)), None);
    assert_eq!(seen(made), Some((0o644, 0)));
    assert_eq!(seen(mode), Some((0o600, 0)));
    assert_eq!(
        (seen(wrote), seen(again), seen(moved)),
        (Some((0o600, 3)), Some((0o600, 3)), Some((0o600, 3)))
    );
    assert_eq!(seen(gone), None);
    assert_eq!(seen(Seq(u64::MAX)), None);
    let leads = |name, seq| past.link_at(&at(ROOT, name), seq).unwrap().map(|link| (link.child, link.set));
    assert_eq!((leads("a", Seq(0)), leads("a", made), leads("a", moved)), (None, Some((id(2), made)), None));
    assert_eq!((leads("b", again), leads("b", moved), leads("b", gone)), (None, Some((id(2), moved)), None));
    let versions = past.versions(id(2)).unwrap();
    let periods: Vec<_> = versions.iter().map(|version| (version.since, version.until)).collect();
    assert_eq!(periods, [(again, Some(gone)), (wrote, Some(again)), (mode, Some(wrote)), (made, Some(mode))]);
    let (time, by) = versions[0].by.clone().unwrap();
    assert_eq!((by, time > Time(0)), (node("one"), true));
    assert_eq!(versions[0].stored.seq_of(&Field::Content), wrote);
    let names = past.past_names(&[id(2), id(9)]).unwrap();
    assert_eq!(names.len(), 2);
    let of_a = past.past_of_name(&at(ROOT, "a")).unwrap();
    assert_eq!((of_a.len(), of_a[0].until, of_a[0].link.child), (1, moved, id(2)));
    // Changes of names in the root directory do not create versions of it.
    assert_eq!(past.versions(ROOT).unwrap().len(), 1);
}

pub fn keeps_each_step_of_a_batch(store: &Store) {
    let answers = commit(
        &**store,
        &[
            make(2, Kind::Regular, ROOT, "a"),
            write(2, "one"),
            write(2, "three"),
            write(7, "nothing"),
            write(2, "fifteen"),
        ],
    );
    let seqs: Vec<_> = answers.into_iter().flatten().collect();
    assert_eq!(seqs.len(), 4);
    let sizes: Vec<_> = seqs
        .iter()
        .map(|seq| past(store).object_at(id(2), *seq).unwrap().unwrap().object.content.size)
        .collect();
    assert_eq!(sizes, [0, 3, 5, 7]);
}

pub fn lists_directories_as_they_were(store: &Store) {
    let dir = done(&**store, make(2, Kind::Directory, ROOT, "dir"));
    let mut seqs = Vec::new();
    for n in 0..6 {
        seqs.push(done(&**store, make(10 + n, Kind::Regular, id(2), &format!("f{n}"))));
    }
    let gone = done(&**store, change([Mutation::Unlink(at(id(2), "f1")), Mutation::Unlink(at(id(2), "f4"))]));
    done(&**store, make(30, Kind::Regular, id(2), "f1"));
    let list = |seq, after: &str, limit| past(store).links_at(id(2), seq, after.as_bytes(), limit).unwrap();
    assert_eq!(names(&list(dir, "", 10)), []);
    let all: Vec<_> = (0..6).map(|n| (format!("f{n}"), id(10 + n), seqs[n as usize])).collect();
    let all: Vec<_> = all.iter().map(|(name, id, seq)| (&**name, *id, *seq)).collect();
    assert_eq!(names(&list(seqs[5], "", 10)), all);
    assert_eq!(names(&list(seqs[2], "", 10)), all[..3]);
    assert_eq!(names(&list(seqs[5], "f0", 2)), all[1..3]);
    assert_eq!(names(&list(gone, "", 10)), [all[0], all[2], all[3], all[5]]);
}

pub fn finds_commits_by_time(store: &Store) {
    let before = system_clock()();
    assert_eq!(seq_at(&**store, before).unwrap(), Seq(0));
    let mut times = Vec::new();
    for n in 0..9 {
        let seq = done(&**store, make(10 + n, Kind::Regular, ROOT, &n.to_string()));
        times.push((seq, store.log_since(Seq(seq.0 - 1), 1).unwrap()[0].at));
    }
    for (seq, time) in &times {
        let last = times.iter().filter(|(_, at)| at == time).map(|(seq, _)| *seq).max().unwrap();
        assert_eq!(seq_at(&**store, *time).unwrap(), last, "{seq}");
    }
    assert_eq!(seq_at(&**store, Time(i64::MAX)).unwrap(), times[8].0);
    assert_eq!(seq_at(&**store, Time(times[0].1.0 - 1)).unwrap(), Seq(0));
}

pub fn forgets_by_age_and_by_count(store: &Store) {
    done(&**store, make(2, Kind::Regular, ROOT, "a"));
    let seqs: Vec<_> = (0..6).map(|n| done(&**store, write(2, &"x".repeat(n + 1)))).collect();
    done(&**store, make(3, Kind::Regular, ROOT, "b"));
    let gone = done(&**store, change([Mutation::Unlink(at(ROOT, "b"))]));
    let sizes = || -> Vec<u64> {
        past(store)
            .versions(id(2))
            .unwrap()
            .iter()
            .map(|version| version.stored.object.content.size)
            .collect()
    };
    assert_eq!(sizes(), [6, 5, 4, 3, 2, 1, 0]);
    let all = store.scan_past((ObjectId(0), Seq(0)), 100).unwrap();
    assert_eq!(all.len(), 7);
    assert_eq!(store.scan_past((all[2].0.object.id, all[2].1), 2).unwrap(), all[3..5]);
    assert_eq!(store.delete_history(seqs[1], None).unwrap(), 2);
    assert_eq!((sizes(), past(store).complete_since().unwrap()), (vec![6, 5, 4, 3, 2], seqs[1]));
    assert_eq!(store.delete_history(Seq(0), Some(2)).unwrap(), 2);
    assert_eq!((sizes(), past(store).complete_since().unwrap()), (vec![6, 5, 4], seqs[1]));
    // A version that is not retained is not replaced by another one.
    let seen = |seq| past(store).object_at(id(2), seq).unwrap().map(|stored| stored.object.content.size);
    assert_eq!((seen(seqs[2]), seen(seqs[3]), seen(gone)), (None, Some(4), Some(6)));
    assert_eq!(past(store).past_of_name(&at(ROOT, "b")).unwrap().len(), 1);
    assert_eq!(store.delete_history(gone, None).unwrap(), 4);
    assert_eq!(sizes(), [6]);
}

pub fn keeps_settings(store: &Store) {
    assert_eq!(store.setting("a").unwrap(), None);
    store.set_setting("a", "1").unwrap();
    store.set_setting("a", "2").unwrap();
    assert_eq!(store.setting("a").unwrap().as_deref(), Some("2"));
}
