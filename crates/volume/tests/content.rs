//! Contents in a local directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use shunt_volume::content::{Blobs, ContentError, ContentStore, Keys, Secret};
use shunt_volume::id::OwnerId;
use shunt_volume::object::{Content, Kind, Layout, Object, Time};
use shunt_volume::store::{Item, MetaStore, SqliteStore};

struct Volume {
    dir: tempfile::TempDir,
    meta: SqliteStore,
    content: ContentStore,
}

impl Volume {
    fn new(keys: Keys) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = Object {
            id: shunt_volume::id::ObjectId::ROOT,
            kind: Kind::Directory,
            mode: 0o755,
            owner: OwnerId(0),
            group: OwnerId(0),
            modified: Time(0),
            target: Vec::new(),
            content: Content::empty(),
            xattrs: BTreeMap::new(),
        };
        let meta = SqliteStore::in_memory(&"v".parse().unwrap(), &root, b"").unwrap();
        let content = ContentStore::new(Blobs::directory(&dir.path().join("data")).unwrap(), keys);
        Self { dir, meta, content }
    }

    fn put(&self, bytes: &[u8], previous: Option<&Content>) -> (Content, u64) {
        let mut upload = self.content.upload(&self.meta);
        let content = upload.put(bytes, bytes.len() as u64, previous).unwrap();
        let sent = upload.finish().unwrap();
        let item = Item { chunks: sent.chunks, ..Item::default() };
        self.meta.commit(&"n".parse().unwrap(), rand::random(), &[item]).unwrap();
        (content, sent.bytes)
    }

    fn get(&self, content: &Content) -> Vec<u8> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"what was here before", 1 << 20).unwrap();
        self.content.fetch_file(&self.meta, content, &file, &|_| ()).unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn packs(&self) -> Vec<std::path::PathBuf> {
        let packs = self.dir.path().join("data/packs");
        let of = |dir: std::path::PathBuf| {
            std::fs::read_dir(dir).into_iter().flatten().map(|at| at.unwrap().path())
        };
        of(packs).flat_map(of).collect()
    }
}

fn noise(seed: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn keys() -> [Keys; 2] {
    [Keys::open([1; 32]), Keys::sealed(&Secret::random())]
}

#[test]
fn files_of_all_sizes_come_back() {
    for keys in keys() {
        let volume = Volume::new(keys);
        let all = noise(1, 9 << 20);
        for length in [0, 1, 512, 513, 4096, 256 << 10, (1 << 20) + 1, 9 << 20] {
            let (content, _) = volume.put(&all[..length], None);
            assert_eq!(content.size, length as u64);
            assert!(volume.get(&content) == all[..length], "{length}");
            let (again, sent) = volume.put(&all[..length], None);
            assert_eq!((again, sent), (content, 0), "sent once");
        }
    }
}

#[test]
fn equal_bytes_have_the_same_digest_however_they_are_cut() {
    let volume = Volume::new(Keys::open([1; 32]));
    let bytes = noise(2, 12 << 20);
    let (defined, _) = volume.put(&bytes, None);
    let mut upload = volume.content.upload(&volume.meta);
    // Said to be large, and so cut at fixed places.
    let fixed = upload.put(&bytes[..], 100 << 20, None).unwrap();
    assert_ne!(defined.layout, fixed.layout);
    assert!(defined.is_same(&fixed));
    let other = upload.put(&bytes[1..], 100 << 20, None).unwrap();
    assert!(!defined.is_same(&other));
}

#[test]
fn only_what_changed_travels() {
    let volume = Volume::new(Keys::open([1; 32]));
    let mut bytes = noise(3, 65 << 20);
    let (content, sent) = volume.put(&bytes, None);
    assert!(sent >= 65 << 20);
    bytes[33 << 20..][..4096].copy_from_slice(&noise(4, 4096));
    let (edited, sent) = volume.put(&bytes, Some(&content));
    assert!(sent > 4096 && sent < 5 << 20, "{sent} bytes for an edit of 4 KiB");
    assert!(volume.get(&edited) == bytes);
    // Another file with mostly the same in it, which nobody said.
    let (_, sent) = volume.put(&bytes[..40 << 20], None);
    assert!(sent < 41 << 20);
}

#[test]
fn many_small_files_share_few_packs() {
    let volume = Volume::new(Keys::open([1; 32]));
    let files: Vec<Vec<u8>> = (0..2000u32).map(|n| noise((n % 251) as u8, 600 + n as usize)).collect();
    let mut upload = volume.content.upload(&volume.meta);
    let contents: Vec<Content> =
        files.iter().map(|file| upload.put(&file[..], file.len() as u64, None).unwrap()).collect();
    let sent = upload.finish().unwrap();
    assert_eq!(volume.packs().len(), 1);
    let item = Item { chunks: sent.chunks, ..Item::default() };
    volume.meta.commit(&"n".parse().unwrap(), 1, &[item]).unwrap();
    for (file, content) in files.iter().zip(&contents) {
        assert!(volume.content.read(&volume.meta, content, 0..u64::MAX).unwrap() == *file);
    }
}

#[test]
fn holes_are_stored_nowhere_and_stay_holes() {
    let volume = Volume::new(Keys::open([1; 32]));
    let mut bytes = vec![0; 72 << 20];
    bytes[40 << 20..][..5].copy_from_slice(b"bytes");
    let (content, sent) = volume.put(&bytes, None);
    assert!(sent < 10_000, "{sent}");
    let Layout::Pieces(pieces) = &content.layout else { panic!("{content:?}") };
    assert_eq!(pieces.len(), 3);
    assert!(volume.get(&content) == bytes);
}

/// What came of an earlier version and was never noted, or is there again after a power failure.
#[test]
fn nothing_of_what_was_in_a_file_shows_in_holes() {
    let volume = Volume::new(Keys::open([1; 32]));
    let mut bytes = vec![0; 70 << 20];
    bytes[65 << 20..][..5].copy_from_slice(b"bytes");
    let small = vec![0; 1024];
    let contents = [&bytes, &small].map(|bytes| volume.put(bytes, None).0);
    let files = contents.each_ref().map(|content| {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; content.size as usize], 0).unwrap();
        file
    });
    let pieces = contents.each_ref().map(|content| volume.content.pieces(&volume.meta, content).unwrap());
    let [large, _] = &files;
    volume.content.fetch(&volume.meta, &pieces[0], 0..bytes.len() as u64, large, None, &|_| ()).unwrap();
    let mut held = vec![1; bytes.len()];
    large.read_exact_at(&mut held, 0).unwrap();
    assert!(held == bytes);

    large.write_all_at(&[7; 4096], 0).unwrap();
    let together: Vec<(&[_], &File)> = pieces.iter().map(|pieces| &pieces[..]).zip(&files).collect();
    volume.content.fetch_together(&volume.meta, &together).unwrap();
    for (file, expected) in files.iter().zip([&bytes, &small]) {
        let mut held = vec![1; expected.len()];
        file.read_exact_at(&mut held, 0).unwrap();
        assert!(held == *expected);
    }
}

#[test]
fn many_pieces_are_named_by_chunks() {
    let volume = Volume::new(Keys::sealed(&Secret::random()));
    // One piece in two is the same everywhere, so that it costs little to have many.
    let mut bytes = vec![1; 280 << 20];
    for n in 0..70 {
        bytes[n << 22] = n as u8;
    }
    let (content, _) = volume.put(&bytes, None);
    assert!(matches!(content.layout, Layout::Indirect(_)));
    let (again, sent) = volume.put(&bytes, Some(&content));
    assert_eq!((&again, sent), (&content, 0));
    let middle = volume.content.read(&volume.meta, &content, (200 << 20) - 1..(200 << 20) + 2).unwrap();
    assert_eq!(middle, [1, 50, 1]);
}

#[test]
fn a_range_brings_its_pieces_only() {
    let volume = Volume::new(Keys::open([1; 32]));
    let bytes = noise(5, 20 << 20);
    let (content, _) = volume.put(&bytes, None);
    let pieces = volume.content.pieces(&volume.meta, &content).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(content.size).unwrap();
    let wanted = 7_000_000..7_000_010;
    let there = volume.content.fetch(&volume.meta, &pieces, wanted.clone(), &file, None, &|_| ()).unwrap();
    assert!(there.start <= wanted.start && there.end >= wanted.end, "{there:?}");
    assert!(there.end - there.start <= 8 << 20, "{there:?}");
    let mut part = vec![0; (there.end - there.start) as usize];
    file.read_exact_at(&mut part, there.start).unwrap();
    assert!(part == bytes[there.start as usize..there.end as usize]);
    let beyond = volume.content.read(&volume.meta, &content, content.size + 5..content.size + 9).unwrap();
    assert!(beyond.is_empty());
}

#[test]
fn what_is_damaged_or_lost_is_told() {
    for keys in keys() {
        let volume = Volume::new(keys);
        let (content, _) = volume.put(&noise(6, 3000), None);
        let pack = volume.packs().remove(0);
        let whole = std::fs::read(&pack).unwrap();
        let read = || volume.content.read(&volume.meta, &content, 0..3000);
        for n in [0, 1, 40, 1500, 2999] {
            File::options().write(true).open(&pack).unwrap().write_all_at(&[whole[n] ^ 4], n as u64).unwrap();
            assert!(matches!(read(), Err(ContentError::Damaged(_))), "{n}: {:?}", read().map(|_| ()));
            std::fs::write(&pack, &whole).unwrap();
        }
        assert!(read().is_ok());
        std::fs::remove_file(&pack).unwrap();
        assert!(matches!(read(), Err(ContentError::Missing(_))), "{:?}", read().map(|_| ()));
    }
}
