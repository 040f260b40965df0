//! Tests of the state, which comes from another process that may be untrusted, and may have ended at any moment.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};
use shunt_fuse_abi::InitFlags;

use super::intents::Intents;
use super::kept_backings::{KeptBackings, MAX_KEPT};
use super::map::Map;
use super::marks::Marks;
use super::opens::{self, OpenKind, OpenRecord};
use super::state::{MAX_DIRECTORIES, MAX_FILES, MAX_INTENTS, MAX_MARKS, TakeoverState, WORDS};
use crate::id::{FileHandle, NodeId};
use crate::negotiate::{Negotiated, Profile};

fn negotiated() -> Negotiated {
    Negotiated {
        minor: 41,
        granted: InitFlags::PASSTHROUGH | InitFlags::HAS_RESEND,
        refused: Vec::new(),
        max_write: 1 << 20,
        max_readahead: 1 << 17,
        profile: Profile::Writeback,
    }
}

fn file_of(state: &TakeoverState) -> OwnedFd {
    state.as_fd().try_clone_to_owned().unwrap()
}

/// Makes the state of an earlier server, with some words changed.
fn left(words: &[(usize, u64)]) -> OwnedFd {
    let file = file_of(&TakeoverState::create(&negotiated()).unwrap());
    let map = Map::open(file.try_clone().unwrap(), WORDS).unwrap();
    words.iter().for_each(|(index, word)| map[*index].store(*word, Ordering::Relaxed));
    file
}

fn record(handle: u64) -> OpenRecord {
    OpenRecord {
        handle: FileHandle(handle),
        node: NodeId(5),
        flags: 2,
        opener: 40,
        open_flags: 3,
        backing: 7,
    }
}

#[test]
fn negotiated_values_are_restored() {
    let (_, found) = TakeoverState::open(left(&[])).unwrap();
    let expected = negotiated();
    assert_eq!((found.minor, found.granted), (expected.minor, expected.granted));
    assert_eq!((found.max_write, found.max_readahead), (expected.max_write, expected.max_readahead));
    assert_eq!(found.profile, expected.profile);
}

/// The words other than 0 in the state of a mirror that had a file open twice and a directory once, as version 2 of the layout has
/// been written since it exists. Version 3 reads them too.
const WORDS_OF_VERSION_2: [(usize, u64); 22] = [
    (0, 0x7374_0074_6e75_6873),
    (1, 2),
    (2, 0x0010_0000_0000_002d),
    (3, 0xbc_31f6_7871),
    (4, 0x2_0000),
    (5, 2),
    (6, 1),
    (7, 2),
    (33_280, 0x1_0000_0000),
    (33_281, 0x8138_d64a_80a7_a979),
    (33_282, 8),
    (33_283, 0xa0_0000_8000),
    (33_284, 2),
    (33_288, 0x2_0000_0001),
    (33_289, 0x8138_d64a_80a7_a979),
    (33_290, 10),
    (33_291, 0xa0_0000_8002),
    (33_292, 2),
    (8_421_888, 0x1_0000_0000),
    (8_421_889, 0xebcb_6230_00a7_a97a),
    (8_421_890, 14),
    (8_421_891, 0x1_8000),
];

#[test]
fn a_state_of_an_earlier_release_is_read() {
    let map = Map::create(WORDS).unwrap();
    WORDS_OF_VERSION_2.iter().for_each(|(index, word)| map[*index].store(*word, Ordering::Relaxed));
    let (state, negotiated) = TakeoverState::open(map.as_fd().try_clone_to_owned().unwrap()).unwrap();
    assert_eq!((negotiated.minor, negotiated.max_write, negotiated.max_readahead), (45, 1 << 20, 1 << 17));
    assert_eq!(negotiated.profile, Profile::Passthrough);
    assert!(negotiated.granted.contains(InitFlags::PASSTHROUGH | InitFlags::HAS_RESEND));
    let file = |handle, opener, flags| OpenRecord {
        handle: FileHandle(handle),
        node: NodeId(0x8138_d64a_80a7_a979),
        flags,
        opener,
        open_flags: 0xa0,
        backing: 2,
    };
    assert_eq!(opens::all(&state, OpenKind::File), [file(1 << 32, 8, 0x8000), file(2 << 32 | 1, 10, 0x8002)]);
    let directories = opens::all(&state, OpenKind::Directory);
    assert_eq!(directories.len(), 1);
    assert_eq!((directories[0].node, directories[0].opener), (NodeId(0xebcb_6230_00a7_a97a), 14));
}

#[test]
fn malformed_state_is_refused() {
    let refused = |file: OwnedFd, word: &str| {
        let error = TakeoverState::open(file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(word), "{error}");
    };
    refused(left(&[(0, 0)]), "version");
    refused(left(&[(1, 1)]), "version 1");
    refused(left(&[(1, u64::MAX)]), "version");
    refused(left(&[(2, 0)]), "maximum write size 0 ");
    refused(left(&[(2, u64::MAX)]), "maximum write size 4294967295");
    let memory = |size: usize, seals| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("test", flags).unwrap();
        rustix::fs::ftruncate(&file, size as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for size in [0, 1, WORDS * 8 - 1, WORDS * 8 - 8, WORDS * 8 + 8] {
        refused(memory(size, seals), "size");
    }
    // It could be truncated while mapped.
    refused(memory(WORDS * 8, SealFlags::GROW), "size");
    let pipe = rustix::pipe::pipe().unwrap().0;
    refused(pipe, "size");
}

#[test]
fn open_files_are_restored_until_they_are_closed() {
    let state = TakeoverState::create(&negotiated()).unwrap();
    for handle in [1 << 32, 1 << 32 | 7, 2 << 32 | (MAX_FILES as u64 - 1)] {
        assert!(opens::add(&state, OpenKind::File, &record(handle)));
    }
    assert!(!opens::add(&state, OpenKind::File, &record(1 << 32 | MAX_FILES as u64)), "no room");
    assert!(!opens::add(&state, OpenKind::Directory, &record(0)), "no handle");
    let (again, _) = TakeoverState::open(file_of(&state)).unwrap();
    assert_eq!(opens::all(&again, OpenKind::File).len(), 3);
    assert_eq!(opens::all(&again, OpenKind::File)[1], record(1 << 32 | 7));
    // A newer handle at the same index belongs to another file.
    opens::remove(&again, OpenKind::File, FileHandle(9 << 32 | 7), || ());
    assert!(opens::is_open(&state, OpenKind::File, FileHandle(1 << 32 | 7)));
    opens::remove(&again, OpenKind::File, FileHandle(1 << 32 | 7), || ());
    assert!(!opens::is_open(&state, OpenKind::File, FileHandle(1 << 32 | 7)));
    assert!(opens::all(&state, OpenKind::Directory).is_empty());
}

#[test]
fn a_server_that_ends_while_it_closes_leaves_its_backing_file_to_be_found() {
    let state = TakeoverState::create(&negotiated()).unwrap();
    opens::add(&state, OpenKind::File, &record(1 << 32));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        opens::remove(&state, OpenKind::File, FileHandle(1 << 32), || {
            std::panic::resume_unwind(Box::new(()))
        });
    }));
    assert!(ended.is_err());
    assert_eq!(opens::doubtful_backings(&state).collect::<Vec<_>>(), [7]);
    // Until its backing file is closed, each server reports it.
    assert_eq!(opens::doubtful_backings(&state).count(), 1);
    opens::clear_doubtful(&state);
    assert_eq!(opens::doubtful_backings(&state).count(), 0);
}

#[test]
fn a_record_in_the_place_of_one_that_goes_is_whole() {
    // The thread that removes the old record continues within the timeout of the wait, or after it.
    for wait in [20, 300] {
        replaced_after(std::time::Duration::from_millis(wait));
    }
}

fn replaced_after(wait: std::time::Duration) {
    let state = TakeoverState::create(&negotiated()).unwrap();
    let (old, new) = (record(1 << 32), OpenRecord { backing: 8, ..record(2 << 32) });
    opens::add(&state, OpenKind::File, &old);
    std::thread::scope(|scope| {
        opens::remove(&state, OpenKind::File, old.handle, || {
            // The file system has reused the number already.
            scope.spawn(|| opens::add(&state, OpenKind::File, &new));
            std::thread::sleep(wait);
        });
    });
    assert_eq!(opens::all(&state, OpenKind::File), [new]);
}

#[test]
fn intents_come_back_with_their_outcome_and_not_for_ever() {
    let state = TakeoverState::create(&negotiated()).unwrap();
    let first = Intents::read(&state, 0);
    let slots: Vec<_> = (1..=3).map(|unique| first.begin(&state, unique * 2, [unique; 4]).unwrap()).collect();
    first.end(&state, slots[1], Ok(()));
    first.end(&state, slots[2], Err(rustix::io::Errno::EXIST));
    let next = Intents::read(&state, 1);
    let outcomes = [2, 4, 6].map(|unique| next.inherit(unique).unwrap().1.outcome);
    assert_eq!(outcomes, [None, Some(Ok(())), Some(Err(rustix::io::Errno::EXIST))]);
    assert!(next.inherit(2).is_none(), "reported only once");
    assert!(Intents::read(&state, 9).inherit(2).is_none(), "an intent is dropped after eight servers");
}

#[test]
fn marks_come_back_and_their_places_are_used_again() {
    let state = TakeoverState::create(&negotiated()).unwrap();
    let marks = Marks::read(&state);
    (1..=5).for_each(|number| marks.add(&state, number));
    marks.add(&state, 0);
    marks.add(&state, 3);
    marks.remove(&state, 4);
    marks.remove(&state, 99);
    let sorted = |marks: &Marks| {
        let mut all = marks.all();
        all.sort_unstable();
        all
    };
    let next = Marks::read(&state);
    assert_eq!(sorted(&next), [1, 2, 3, 5]);
    next.add(&state, 6);
    assert_eq!(sorted(&Marks::read(&state)), [1, 2, 3, 5, 6]);
    for number in 10..10 + MAX_MARKS as u64 - 5 {
        next.add(&state, number);
    }
    assert!(Marks::are_complete(&state));
    next.add(&state, 7);
    assert!(!Marks::are_complete(&state), "the mark did not fit");
    assert_eq!(Marks::read(&state).all().len(), MAX_MARKS);
}

/// Indices near words with a meaning, and anywhere.
fn index() -> impl Strategy<Value = usize> {
    let files = 512 + MAX_INTENTS * 16;
    let directories = files + MAX_FILES * 8;
    let marks = directories + MAX_DIRECTORIES * 8;
    prop_oneof![
        2usize..512,
        (0..64usize).prop_map(|n| 512 + n),
        (0..64usize).prop_map(move |n| files + n),
        (0..64usize).prop_map(move |n| directories + n),
        (0..64usize).prop_map(move |n| marks + n),
        2usize..WORDS,
    ]
}

fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..64,
        any::<u64>(),
        (0u64..4, 0u64..4).prop_map(|(high, low)| high << 32 | low),
        Just(u64::MAX)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// For any content: nothing panics, no record contradicts itself, and the state remains usable.
    #[test]
    fn any_words_are_survived(words in prop::collection::vec((index(), word()), 0..200), takeovers in any::<u32>()) {
        let Ok((state, _)) = TakeoverState::open(left(&words)) else { return Ok(()) };
        for (kind, limit) in [(OpenKind::File, MAX_FILES), (OpenKind::Directory, MAX_DIRECTORIES)] {
            let records = opens::all(&state, kind);
            let handles: HashSet<_> = records.iter().map(|record| record.handle.0 as u32).collect();
            prop_assert_eq!(handles.len(), records.len());
            for record in &records {
                prop_assert!(record.node.0 != 0 && (record.handle.0 as u32 as usize) < limit);
                prop_assert!(opens::is_open(&state, kind, record.handle));
            }
            if let Some(first) = records.first() {
                opens::remove(&state, kind, first.handle, || ());
                prop_assert!(!opens::is_open(&state, kind, first.handle));
            }
        }
        prop_assert!(opens::doubtful_backings(&state).count() <= MAX_FILES);
        let intents = Intents::read(&state, takeovers.into());
        for (_, word) in &words {
            let _ = intents.inherit(*word);
        }
        if let Some(slot) = intents.begin(&state, 2, [1; 4]) {
            intents.end(&state, slot, Ok(()));
            intents.clear(&state, slot);
        }
        let marks = Marks::read(&state);
        prop_assert!(marks.all().len() <= MAX_MARKS && !marks.all().contains(&0));
        marks.add(&state, 1234);
        marks.remove(&state, 1234);
    }
}

/// A server may end at any moment of adding or removing: the next one finds each backing file as kept, or as one that may still be
/// registered.
#[test]
fn kept_backings_are_found_by_the_next_server() {
    let mut kept = KeptBackings::create().unwrap();
    let file = || kept.as_fd().try_clone_to_owned().unwrap();
    let first = file();
    assert!(kept.add(NodeId(1), 11) && kept.add(NodeId(2), 12) && kept.add(NodeId(3), 13));
    assert!(kept.add(NodeId(2), 12), "recorded already");
    let index = kept.begin_removal(NodeId(1), 11).unwrap();
    kept.finish_removal(index);
    assert!(kept.add(NodeId(4), 14), "in the place of the first");
    assert_eq!(kept.begin_removal(NodeId(1), 11), None);
    kept.begin_removal(NodeId(3), 13).unwrap();
    let mut next = KeptBackings::open(first.try_clone().unwrap()).unwrap();
    let all = |kept: &KeptBackings| kept.all().collect::<HashSet<_>>();
    assert_eq!(all(&next), HashSet::from([(NodeId(2), 12), (NodeId(4), 14)]));
    // A server that ends before it has closed them leaves them to the one after it.
    for _ in 0..2 {
        assert_eq!(next.doubtful().collect::<Vec<_>>(), [13]);
        next = KeptBackings::open(first.try_clone().unwrap()).unwrap();
    }
    next.clear_doubtful();
    let added = (0..).take_while(|n| next.add(NodeId(100 + n), 100)).count();
    assert_eq!(added, MAX_KEPT - 2);
    let again = KeptBackings::open(first).unwrap();
    assert_eq!((again.all().count(), again.doubtful().count()), (MAX_KEPT, 0));
}

#[test]
fn malformed_records_of_kept_backings_are_survived() {
    let words = Map::create(MAX_KEPT * 2).unwrap();
    // Twice the same; a node without a backing file; a backing file without a node, as while a record is added.
    for (index, word) in [(0, 5), (1, 7), (4, 5), (5, 7), (8, 9), (11, 3)] {
        words[index].store(word, Ordering::Relaxed);
    }
    let file = || words.as_fd().try_clone_to_owned().unwrap();
    let mut kept = KeptBackings::open(file()).unwrap();
    assert_eq!(kept.all().collect::<Vec<_>>(), [(NodeId(5), 7)]);
    assert_eq!(kept.doubtful().collect::<HashSet<_>>(), HashSet::from([3, 7]));
    kept.clear_doubtful();
    assert!(kept.add(NodeId(6), 8) && kept.add(NodeId(7), 9));
    let index = kept.begin_removal(NodeId(5), 7).unwrap();
    kept.finish_removal(index);
    let kept = KeptBackings::open(file()).unwrap();
    assert_eq!(kept.all().collect::<HashSet<_>>(), HashSet::from([(NodeId(6), 8), (NodeId(7), 9)]));
    assert_eq!(kept.doubtful().count(), 0);
    let short = Map::create(8).unwrap();
    assert!(KeptBackings::open(short.as_fd().try_clone_to_owned().unwrap()).is_err());
}
