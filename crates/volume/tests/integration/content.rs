//! Contents in a local directory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Instant;

use shunt_volume::chunks::{Blobs, ChunkKeys, ContentError, ContentStore};
use shunt_volume::crypto::VolumeKey;
use shunt_volume::id::OwnerId;
use shunt_volume::object::{ChunkId, Content, Kind, Layout, Object, Segment, Time};
use shunt_volume::store::{ChunkLocation, MetaStore, SqliteStore, Transaction};

use crate::common::faulty_object_store::{FaultyObjectStore, NetworkMode, REPLY_DELAY};

struct Volume {
    dir: tempfile::TempDir,
    meta: SqliteStore,
    content: ContentStore,
}

impl Volume {
    fn new(keys: ChunkKeys) -> Self {
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
        let item = Transaction { chunks: sent.chunks, ..Transaction::default() };
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

fn keys() -> [ChunkKeys; 2] {
    [ChunkKeys::open([1; 32]), ChunkKeys::sealed(&VolumeKey::random())]
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
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let bytes = noise(2, 12 << 20);
    let (defined, _) = volume.put(&bytes, None);
    let mut upload = volume.content.upload(&volume.meta);
    // Announced as large, and so chunked at fixed offsets.
    let fixed = upload.put(&bytes[..], 100 << 20, None).unwrap();
    assert_ne!(defined.layout, fixed.layout);
    assert!(defined.is_same(&fixed));
    let other = upload.put(&bytes[1..], 100 << 20, None).unwrap();
    assert!(!defined.is_same(&other));
}

#[test]
fn only_what_changed_travels() {
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let mut bytes = noise(3, 65 << 20);
    let (content, sent) = volume.put(&bytes, None);
    assert!(sent >= 65 << 20);
    bytes[33 << 20..][..4096].copy_from_slice(&noise(4, 4096));
    let (edited, sent) = volume.put(&bytes, Some(&content));
    assert!(sent > 4096 && sent < 5 << 20, "{sent} bytes for an edit of 4 KiB");
    assert!(volume.get(&edited) == bytes);
    // Another file with mostly the same data and no hint of that.
    let (_, sent) = volume.put(&bytes[..40 << 20], None);
    assert!(sent < 41 << 20);
}

#[test]
fn many_small_files_share_few_packs() {
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let files: Vec<Vec<u8>> = (0..2000u32).map(|n| noise((n % 251) as u8, 600 + n as usize)).collect();
    let mut upload = volume.content.upload(&volume.meta);
    let contents: Vec<Content> =
        files.iter().map(|file| upload.put(&file[..], file.len() as u64, None).unwrap()).collect();
    let sent = upload.finish().unwrap();
    assert_eq!(volume.packs().len(), 1);
    let item = Transaction { chunks: sent.chunks, ..Transaction::default() };
    volume.meta.commit(&"n".parse().unwrap(), 1, &[item]).unwrap();
    for (file, content) in files.iter().zip(&contents) {
        assert!(volume.content.read(&volume.meta, content, 0..u64::MAX).unwrap() == *file);
    }
}

#[test]
fn holes_are_stored_nowhere_and_stay_holes() {
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let mut bytes = vec![0; 72 << 20];
    bytes[40 << 20..][..5].copy_from_slice(b"bytes");
    let (content, sent) = volume.put(&bytes, None);
    assert!(sent < 10_000, "{sent}");
    let Layout::Direct(pieces) = &content.layout else { panic!("{content:?}") };
    assert_eq!(pieces.len(), 3);
    assert!(volume.get(&content) == bytes);
}

/// The file holds data of an earlier version that was never recorded, or that reappeared after a power failure.
#[test]
fn holes_never_show_old_content() {
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let mut bytes = vec![0; 70 << 20];
    bytes[65 << 20..][..5].copy_from_slice(b"bytes");
    let small = vec![0; 1024];
    let contents = [&bytes, &small].map(|bytes| volume.put(bytes, None).0);
    let files = contents.each_ref().map(|content| {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; content.size as usize], 0).unwrap();
        file
    });
    let pieces = contents.each_ref().map(|content| volume.content.segments(&volume.meta, content).unwrap());
    let [large, _] = &files;
    volume.content.fetch(&volume.meta, &pieces[0], 0..bytes.len() as u64, large, None, &|_| ()).unwrap();
    let mut held = vec![1; bytes.len()];
    large.read_exact_at(&mut held, 0).unwrap();
    assert!(held == bytes);

    large.write_all_at(&[7; 4096], 0).unwrap();
    let together: Vec<(&[_], &File)> = pieces.iter().map(|pieces| &pieces[..]).zip(&files).collect();
    volume.content.fetch_batch(&volume.meta, &together).unwrap();
    for (file, expected) in files.iter().zip([&bytes, &small]) {
        let mut held = vec![1; expected.len()];
        file.read_exact_at(&mut held, 0).unwrap();
        assert!(held == *expected);
    }
}

#[test]
fn many_pieces_are_named_by_chunks() {
    let volume = Volume::new(ChunkKeys::sealed(&VolumeKey::random()));
    // One chunk in two is the same everywhere, so that many chunks cost little.
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
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    let bytes = noise(5, 20 << 20);
    let (content, _) = volume.put(&bytes, None);
    let pieces = volume.content.segments(&volume.meta, &content).unwrap();
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
fn damaged_or_missing_chunk_is_reported() {
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

/// Nodes with write access need not be honest.
impl Volume {
    /// Records a chunk location, without a check of the data there.
    fn place(&self, id: ChunkId, place: ChunkLocation) {
        let item = Transaction { chunks: vec![(id, place)], ..Transaction::default() };
        self.meta.commit(&"n".parse().unwrap(), rand::random(), &[item]).unwrap();
    }

    /// Stores a chunk as it is, of any length. The volume's keys must be those of [`OPEN`].
    fn plant(&self, bytes: &[u8]) -> Segment {
        let id = ChunkId(*blake3::keyed_hash(&OPEN, bytes).as_bytes());
        let key = format!("packs/00/{:032x}", rand::random::<u128>());
        let path = self.dir.path().join("data").join(&key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, [&[0], bytes].concat()).unwrap();
        let length = bytes.len() as u32;
        self.place(id, ChunkLocation { key, offset: 0, stored: length + 1, length });
        Segment::Chunk { id, length }
    }
}

const OPEN: [u8; 32] = [1; 32];

#[test]
fn lists_of_more_pieces_than_a_file_has_are_damage() {
    let volume = Volume::new(ChunkKeys::open(OPEN));
    let list = |pieces: &[Segment]| volume.plant(&postcard::to_stdvec(pieces).unwrap());
    let pieces = |lists: Vec<Segment>, size| {
        let content = Content { size, digest: [7; 32], layout: Layout::Indirect(lists) };
        volume.content.segments(&volume.meta, &content)
    };
    let hole = |length| Segment::Hole { length };
    assert_eq!(pieces(vec![list(&[hole(1 << 30), hole(5)]); 40], 40 * ((1 << 30) + 5)).unwrap().len(), 80);
    let short = list(&[hole(1); 4096]);
    let many = list(&[hole(1); 4097]);
    let empty = list(&[hole(1), hole(0)]);
    let long = volume.plant(&postcard::to_stdvec(&vec![hole(1); 8 << 20]).unwrap());
    for (lists, size) in [
        (vec![short; 1024], 1024 * 4096),
        (vec![short; 1024], 1 << 40),
        (vec![many], 4097),
        (vec![empty], 1),
        (vec![long; 1024], 8 << 30),
        (vec![volume.plant(b"")], 0),
        (vec![hole(5)], 5),
    ] {
        let found = pieces(lists, size).map(|pieces| pieces.len());
        assert!(matches!(found, Err(ContentError::Damaged(_))), "{found:?}");
    }
}

#[test]
fn places_where_nothing_can_be_are_damage() {
    let volume = Volume::new(ChunkKeys::open(OPEN));
    let (good, _) = volume.put(&noise(1, 1000), None);
    let Segment::Chunk { id, length } = volume.plant(&noise(2, 1000)) else { panic!() };
    let place = volume.meta.locate_chunks(&[id]).unwrap().remove(0).unwrap();
    let read = |id, length: u32| {
        let layout = Layout::Direct(vec![Segment::Chunk { id, length }]);
        let content = Content { size: length.into(), digest: [7; 32], layout };
        let file = tempfile::tempfile().unwrap();
        let fetched = volume.content.fetch_file(&volume.meta, &content, &file, &|_| ());
        let pieces = volume.content.segments(&volume.meta, &content).unwrap();
        let together = volume.content.fetch_batch(&volume.meta, &[(&pieces, &file)]);
        assert_eq!(fetched.is_ok(), together.is_ok());
        volume.content.read(&volume.meta, &content, 0..u64::MAX).map(|bytes| bytes.len())
    };
    assert_eq!(read(id, length).unwrap(), 1000);
    for other in [1, length - 1, length + 1, 16 << 20, u32::MAX] {
        let found = read(id, other);
        assert!(matches!(found, Err(ContentError::Damaged(_))), "{other}: {found:?}");
    }
    let places = [
        ChunkLocation { offset: i64::MAX as u64, ..place.clone() },
        ChunkLocation { offset: 1 << 40, ..place.clone() },
        ChunkLocation { offset: 2000, ..place.clone() },
        ChunkLocation { stored: 0, ..place.clone() },
        ChunkLocation { stored: u32::MAX, ..place.clone() },
        ChunkLocation { length: u32::MAX, ..place.clone() },
        ChunkLocation { key: String::new(), ..place.clone() },
        ChunkLocation { key: "packs/#1".to_owned(), ..place.clone() },
        ChunkLocation { key: format!("{}/below", place.key), ..place.clone() },
        ChunkLocation { key: format!("packs/{}", "0".repeat(5000)), ..place },
    ];
    for (n, place) in places.into_iter().enumerate() {
        let id = ChunkId([n as u8; 32]);
        volume.place(id, place.clone());
        let found = read(id, place.length);
        let is_told = matches!(found, Err(ContentError::Damaged(_) | ContentError::Missing(_)));
        assert!(is_told, "{place:?}: {found:?}");
    }
    assert!(volume.get(&good) == noise(1, 1000));
}

#[test]
fn bytes_with_the_metadata_of_an_encrypted_volume_are_damage() {
    let planted = Content { size: 4, digest: [7; 32], layout: Layout::Inline(b"text".to_vec()) };
    for keys in keys() {
        let encrypts = keys.encrypts();
        let volume = Volume::new(keys);
        let file = tempfile::tempfile().unwrap();
        let fetched = volume.content.fetch_file(&volume.meta, &planted, &file, &|_| ());
        let read = volume.content.read(&volume.meta, &planted, 1..9);
        if encrypts {
            assert!(matches!(fetched, Err(ContentError::Damaged(_))), "{fetched:?}");
            assert!(matches!(read, Err(ContentError::Damaged(_))), "{read:?}");
        } else {
            assert_eq!(read.unwrap(), b"ext");
        }
        assert!(volume.get(&Content::empty()).is_empty());
    }
}

/// Chunks authenticate themselves, but a writer of the metadata without the key may choose among existing ones.
#[test]
fn other_pieces_than_those_of_the_file_are_damage_in_an_encrypted_volume() {
    let volume = Volume::new(ChunkKeys::sealed(&VolumeKey::random()));
    let (content, _) = volume.put(&[noise(1, 8 << 20), vec![0; 1 << 20], noise(2, 8 << 20)].concat(), None);
    let Layout::Direct(pieces) = &content.layout else { panic!("{content:?}") };
    let hole = |piece: &Segment| Segment::Hole { length: piece.length() };
    let mut variants = vec![pieces.clone(); 3];
    variants[0][0] = hole(&pieces[0]);
    variants[1].reverse();
    variants[2][1] = pieces[0];
    for pieces in variants {
        let size = pieces.iter().map(Segment::length).sum();
        let altered = Content { size, layout: Layout::Direct(pieces), ..content.clone() };
        let file = tempfile::tempfile().unwrap();
        let fetched = volume.content.fetch_file(&volume.meta, &altered, &file, &|_| ());
        assert!(matches!(fetched, Err(ContentError::Damaged(_))), "{fetched:?}");
    }
    assert_eq!(volume.get(&content).len() as u64, content.size);
}

/// A user may have written to the file by then, or another version may have been downloaded.
#[test]
fn failed_download_writes_no_more() {
    let volume = Volume::new(ChunkKeys::open([1; 32]));
    // More than one request.
    let (content, _) = volume.put(&noise(3, 20 << 20), None);
    let bad = Arc::new(FaultyObjectStore::over(volume.content.blobs().objects()));
    let far = ContentStore::new(Blobs::over(bad.clone()), ChunkKeys::open([1; 32]));
    let file = tempfile::tempfile().unwrap();
    for way in [NetworkMode::Uneven(true), NetworkMode::Broken(true)].repeat(4) {
        *bad.mode.lock() = way;
        let begun = Instant::now();
        let failed = far.fetch_file(&volume.meta, &content, &file, &|_| ()).unwrap_err();
        assert!(failed.is_unreachable(), "{failed}");
        assert!(begun.elapsed() < REPLY_DELAY, "nobody waits for what is of no use");
        file.set_len(0).unwrap();
        file.write_all_at(b"written since", 0).unwrap();
        std::thread::sleep(REPLY_DELAY * 2);
        assert_eq!(file.metadata().unwrap().len(), 13);
    }
    *bad.mode.lock() = NetworkMode::Open;
    far.fetch_file(&volume.meta, &content, &file, &|_| ()).unwrap();
    let mut bytes = vec![0; 20 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == noise(3, 20 << 20));
}
