//! Volume check (fsck), repair and garbage collection.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use shunt_volume::address::MetaAddress;
use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::{NodeName, ObjectId, OwnerId};
use shunt_volume::maintenance::{Checked, Depth, Problem, collect, fsck, repair};
use shunt_volume::object::{Content, Kind, LinkName, Object, Time};
use shunt_volume::open::{Options, create};
use shunt_volume::store::{Mutation, Transaction};
use shunt_volume::volume::Volume;

struct TestVolume {
    dir: tempfile::TempDir,
    volume: Volume,
    node: NodeName,
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn at(name: &str) -> LinkName {
    LinkName { parent: ObjectId::ROOT, name: name.as_bytes().to_vec() }
}

impl TestVolume {
    fn new(secret: Option<VolumeKey>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { secret, ..Options::default() };
        let at = MetaAddress::Sqlite(dir.path().to_owned());
        let volume = create(&at, &"v".parse().unwrap(), &options).unwrap();
        Self { dir, volume, node: "keeper".parse().unwrap() }
    }

    fn commit(&self, item: Transaction) {
        self.volume.meta.commit(&self.node, rand::random(), &[item]).unwrap().remove(0).unwrap();
    }

    fn file(&self, n: u128, bytes: &[u8]) -> Content {
        let mut upload = self.volume.content.upload(&*self.volume.meta);
        let content = upload.put(bytes, bytes.len() as u64, None).unwrap();
        let object = Object {
            id: ObjectId(n),
            kind: Kind::Regular,
            mode: 0o644,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: Time(0),
            target: Vec::new(),
            content: content.clone(),
            xattrs: Default::default(),
        };
        let change = vec![Mutation::Make(object), Mutation::Link(at(&n.to_string()), ObjectId(n))];
        self.commit(Transaction {
            mutations: change,
            chunks: upload.finish().unwrap().chunks,
            ..Transaction::default()
        });
        content
    }

    fn check(&self) -> Checked {
        fsck(&self.volume, Depth::Contents, &|_, _| ()).unwrap()
    }

    fn sql(&self, sql: &str) {
        let db = rusqlite::Connection::open(self.dir.path().join("meta.db")).unwrap();
        assert!(db.execute(sql, []).unwrap() > 0, "{sql}");
    }

    fn packs(&self) -> Vec<PathBuf> {
        let of = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().map(|at| at.unwrap().path());
        of(self.dir.path().join("data/packs")).flat_map(of).collect()
    }

    fn read(&self, content: &Content) -> Option<Vec<u8>> {
        self.volume.content.read(&*self.volume.meta, content, 0..u64::MAX).ok()
    }
}

#[test]
fn a_sound_volume_has_no_problems() {
    for secret in [None, Some(VolumeKey::random())] {
        let kept = TestVolume::new(secret);
        (2..20).for_each(|n| drop(kept.file(n, &noise(n as u8, 700 * n as usize))));
        let checked = kept.check();
        assert_eq!((checked.objects, checked.names, checked.chunks), (19, 18, 18), "{checked:?}");
        assert_eq!((checked.count, checked.at), (0, Some(kept.volume.meta.head().unwrap())));
    }
}

#[test]
fn wrong_counts_are_found_and_mended() {
    let kept = TestVolume::new(None);
    kept.file(2, b"text");
    kept.sql("UPDATE object SET names = 7 WHERE names = 1");
    let checked = kept.check();
    assert_eq!(checked.problems, [Problem::Count(ObjectId::ROOT, 0, 1)]);
    let repaired = repair(&kept.volume, &kept.node, &checked, &|_, _| ()).unwrap();
    assert_eq!((repaired.counts, repaired.unrepaired), (1, 0));
    assert_eq!(kept.check().count, 0);
}

#[test]
fn orphan_gets_a_name() {
    let kept = TestVolume::new(None);
    let content = kept.file(2, &noise(1, 1000));
    kept.sql("DELETE FROM link");
    let checked = kept.check();
    assert_eq!(checked.count, 3, "{checked:?}");
    let repaired = repair(&kept.volume, &kept.node, &checked, &|_, _| ()).unwrap();
    assert_eq!((repaired.relinked, repaired.unrepaired), (1, 0));
    assert_eq!(kept.check().problems, []);
    assert_eq!(kept.read(&content), Some(noise(1, 1000)));
}

#[test]
fn names_that_lead_nowhere_are_found() {
    let kept = TestVolume::new(None);
    kept.file(2, b"text");
    kept.sql("DELETE FROM object WHERE id != x'00000000000000000000000000000001'");
    assert_eq!(kept.check().problems, [Problem::Dangling(at("2"))]);
}

#[test]
fn lost_places_are_found_again_in_the_packs() {
    let kept = TestVolume::new(None);
    let content = kept.file(2, &noise(1, 3_000_000));
    kept.sql("DELETE FROM chunk");
    let checked = kept.check();
    assert!(checked.count > 0 && checked.problems.iter().all(|at| matches!(at, Problem::Missing(..))));
    assert_eq!(kept.read(&content), None);
    let repaired = repair(&kept.volume, &kept.node, &checked, &|_, _| ()).unwrap();
    assert_eq!((repaired.chunks, repaired.unrepaired), (checked.count, 0));
    assert_eq!(kept.check().problems, []);
    assert_eq!(kept.read(&content), Some(noise(1, 3_000_000)));
}

#[test]
fn damaged_pieces_are_found_and_another_copy_is_taken() {
    let kept = TestVolume::new(None);
    let content = kept.file(2, &noise(1, 1000));
    kept.file(3, &noise(2, 1000));
    // A second pack with the same chunk.
    let pack =
        kept.packs().into_iter().find(|pack| std::fs::read(pack).unwrap()[1..9] == noise(1, 8)).unwrap();
    std::fs::copy(&pack, pack.with_file_name("f".repeat(32))).unwrap();
    let damage = |pack| std::fs::File::options().write(true).open(pack).unwrap().write_all_at(b"damage", 500);
    damage(&pack).unwrap();
    let checked = kept.check();
    assert!(matches!(checked.problems[..], [Problem::Damaged(..)]), "{checked:?}");
    let repaired = repair(&kept.volume, &kept.node, &checked, &|_, _| ()).unwrap();
    assert_eq!((repaired.chunks, repaired.unrepaired), (1, 0));
    assert_eq!(kept.check().problems, []);
    assert_eq!(kept.read(&content), Some(noise(1, 1000)));
    // Without another copy, the damage stays until a node uploads the chunk again.
    damage(&pack.with_file_name("f".repeat(32))).unwrap();
    let repaired = repair(&kept.volume, &kept.node, &kept.check(), &|_, _| ()).unwrap();
    assert_eq!((repaired.chunks, repaired.unrepaired), (0, 1));
    assert!(matches!(kept.check().problems[..], [Problem::Missing(..)]), "{:?}", kept.check());
    collect(&kept.volume, Duration::ZERO, None, &|_, _| ()).unwrap();
    kept.file(4, &noise(1, 1000));
    assert_eq!(kept.check().problems, []);
    assert_eq!(kept.read(&content), Some(noise(1, 1000)));
}

/// The unreadable pack may contain the missing chunk.
#[test]
fn unreadable_pack_prevents_repair() {
    let kept = TestVolume::new(None);
    kept.file(2, &noise(1, 1000));
    let pack = &kept.packs()[0];
    std::fs::write(pack.with_file_name("f".repeat(32)), b"what is to come ShntPk99").unwrap();
    std::fs::File::options().write(true).open(pack).unwrap().write_all_at(b"damage", 500).unwrap();
    let checked = kept.check();
    let refused = repair(&kept.volume, &kept.node, &checked, &|_, _| ()).unwrap_err();
    assert!(refused.to_string().contains("newer version"), "{refused}");
    assert_eq!(kept.check().problems, checked.problems);
}

/// A node that has a file with lost chunks uploads them again, although the store had them at the last synchronisation.
#[test]
fn lost_content_is_uploaded_again_by_a_node_that_has_it() {
    for size in [1000, 72 << 20] {
        let kept = TestVolume::new(None);
        let bytes = noise(1, size);
        let content = kept.file(2, &bytes);
        std::fs::remove_file(&kept.packs()[0]).unwrap();
        let lost = kept.check().count;
        assert!(lost > 0);
        repair(&kept.volume, &kept.node, &kept.check(), &|_, _| ()).unwrap();
        let mut upload = kept.volume.content.upload(&*kept.volume.meta);
        assert_eq!(upload.put(&bytes[..], size as u64, Some(&content)).unwrap(), content);
        let chunks = upload.finish().unwrap().chunks;
        assert_eq!(chunks.len() as u64, lost);
        kept.commit(Transaction { chunks, ..Transaction::default() });
        assert_eq!(kept.check().problems, []);
        assert_eq!(kept.read(&content), Some(bytes));
    }
}

#[test]
fn only_what_nothing_speaks_of_is_freed_and_not_at_once() {
    let kept = TestVolume::new(None);
    let content = kept.file(2, &noise(1, 5000));
    // Uploaded, and never referenced.
    let mut upload = kept.volume.content.upload(&*kept.volume.meta);
    upload.put(&noise(9, 5000)[..], 5000, None).unwrap();
    kept.commit(Transaction { chunks: upload.finish().unwrap().chunks, ..Transaction::default() });
    // A version that only the log references.
    let old = kept.file(3, &noise(3, 5000));
    kept.commit(Transaction { mutations: vec![Mutation::Unlink(at("3"))], ..Transaction::default() });
    assert_eq!(kept.packs().len(), 3);

    let collect = |grace| collect(&kept.volume, grace, None, &|_, _| ()).unwrap();
    let first = collect(Duration::from_secs(3600));
    assert_eq!((first.live, first.marked, first.dropped, first.packs), (2, 1, 0, 0));
    // A marked chunk is not offered for deduplication, is uploaded again, and is then unmarked.
    let sends = |bytes: &[u8]| {
        let mut upload = kept.volume.content.upload(&*kept.volume.meta);
        upload.put(bytes, bytes.len() as u64, None).unwrap();
        upload.finish().unwrap().chunks
    };
    assert_eq!(sends(&noise(1, 5000)), []);
    let again = sends(&noise(9, 5000));
    assert_eq!(again.len(), 1);
    std::thread::sleep(Duration::from_millis(1100));
    let second = collect(Duration::from_millis(1000));
    assert_eq!((second.live, second.marked, second.dropped, second.packs), (2, 0, 1, 2));
    assert_eq!(kept.read(&content), Some(noise(1, 5000)));
    assert_eq!(kept.read(&old), Some(noise(3, 5000)), "history stays");
    assert_eq!(kept.check().count, 0);
}
