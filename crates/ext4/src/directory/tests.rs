//! Property tests: directories in memory are changed at random and compared with a map.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use zerocopy::FromZeros;

use super::index::COLLIDING;
use super::*;
use crate::layout::{Compat, Incompat, RawSuperblock, RoCompat};

const SEED: u32 = 0x1234_5678;

/// File system features that affect directories.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    block_bits: u32,
    sums: bool,
    types: bool,
    index: bool,
    large: bool,
    hash: u8,
    unsigned: bool,
}

const PLAIN: Kinds =
    Kinds { block_bits: 10, sums: true, types: true, index: true, large: false, hash: 1, unsigned: false };

impl Kinds {
    fn geometry(self) -> Geometry {
        let mut raw = RawSuperblock::new_zeroed();
        raw.rev_level = 1.into();
        raw.log_block_size = (self.block_bits - 10).into();
        raw.first_data_block = u32::from(self.block_bits == 10).into();
        raw.blocks_count_lo = 8192.into();
        raw.blocks_per_group = 8192.into();
        raw.clusters_per_group = 8192.into();
        raw.inodes_per_group = 8192.into();
        raw.inodes_count = 8192.into();
        raw.inode_size = 128.into();
        raw.first_ino = 11.into();
        raw.hash_seed = [1, 2, 3, 4].map(Into::into);
        let mut geometry = Geometry::check(&raw).unwrap();
        geometry.inodes = u32::MAX;
        geometry.checksum_seed = self.sums.then_some(SEED);
        geometry.ro_compat.set(RoCompat::METADATA_CSUM, self.sums);
        geometry.incompat.set(Incompat::FILETYPE, self.types);
        geometry.incompat.set(Incompat::LARGE_DIR, self.large);
        geometry.compat.set(Compat::DIR_INDEX, self.index);
        geometry.hash_version = self.hash;
        geometry.unsigned_hash = self.unsigned;
        geometry
    }
}

/// A directory with its blocks in memory.
struct Memory {
    geometry: Geometry,
    blocks: Vec<Arc<[u8]>>,
    indexed: bool,
    /// Maximum number of blocks.
    room: usize,
}

impl Source for Memory {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn number(&self) -> u32 {
        12
    }

    fn is_indexed(&self) -> bool {
        self.indexed
    }

    fn length(&self) -> Result<u32> {
        Ok(self.blocks.len() as u32)
    }

    fn block(&self, logical: u32) -> Result<Option<(u64, Arc<[u8]>)>> {
        Ok(self.blocks.get(logical as usize).map(|block| (logical.into(), block.clone())))
    }
}

impl Target for Memory {
    fn change<R>(
        &mut self,
        logical: u32,
        change: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<R, Corruption>,
    ) -> Result<R> {
        let block = &mut self.blocks[logical as usize];
        assert_eq!(Arc::strong_count(block), 1, "a block is changed while another reference exists");
        Ok(change(Arc::make_mut(block), &self.geometry)?)
    }

    fn append(
        &mut self,
        fill: impl FnOnce(&mut [u8], &Geometry) -> std::result::Result<(), Corruption>,
    ) -> Result<u32> {
        if self.blocks.len() == self.room {
            return Err(Error::NoSpace);
        }
        let mut block = vec![0; self.geometry.block_size as usize];
        fill(&mut block, &self.geometry)?;
        self.blocks.push(block.into());
        Ok(self.blocks.len() as u32 - 1)
    }

    fn set_indexed(&mut self, indexed: bool) {
        self.indexed = indexed;
    }
}

type Names = BTreeMap<Vec<u8>, (u32, Kind)>;

impl Memory {
    fn new(kinds: Kinds) -> Self {
        let mut new =
            Self { geometry: kinds.geometry(), blocks: Vec::new(), indexed: false, room: usize::MAX };
        new.append(|block, geometry| {
            make_first(block, geometry, 12, 2);
            Ok(())
        })
        .unwrap();
        new
    }

    fn insert(&mut self, name: &[u8], (inode, kind): (u32, Kind)) -> Result<()> {
        insert(self, &Link { name, inode, kind })
    }

    fn remove(&mut self, name: &[u8]) {
        let found = find(self, name).unwrap();
        remove(self, &found, name).unwrap();
    }

    /// Returns all names as listed.
    fn listed(&self) -> Names {
        let mut names = Names::new();
        for block in &self.blocks {
            for entry in Entries::new(block, &self.geometry) {
                let entry = entry.unwrap();
                if entry.inode != 0 {
                    let value = (entry.inode, entry.kind.unwrap_or(Kind::Regular));
                    assert!(names.insert(entry.name.to_vec(), value).is_none(), "listed twice");
                }
            }
        }
        assert_eq!(names.remove(&b"."[..]).unwrap().0, 12);
        assert_eq!(names.remove(&b".."[..]).unwrap().0, 2);
        names
    }

    /// Checks that the tree references each leaf once, and that each leaf contains only names of its range.
    fn check_tree(&self) {
        if !self.indexed {
            return;
        }
        let info = node::info(&self.blocks[0]).unwrap();
        let hasher = index::hasher(self).unwrap().unwrap();
        let mut seen = BTreeSet::from([0]);
        let mut level = vec![(0_u32, 0_u32, u32::MAX)];
        for _ in 0..=info.indirect_levels {
            let mut below = Vec::new();
            for (logical, from, until) in level {
                let block = &self.blocks[logical as usize];
                let node = Node::parse(block, logical == 0).unwrap();
                node.check_order().unwrap();
                for slot in 0..node.count {
                    let from = if slot == 0 { from } else { node.hash(slot) };
                    let until = if slot + 1 == node.count { until } else { node.hash(slot + 1) };
                    assert!(seen.insert(node.block(slot)), "a block is referenced twice");
                    below.push((node.block(slot), from, until));
                }
            }
            level = below;
        }
        assert_eq!(seen.len(), self.blocks.len(), "some blocks are not referenced");
        for (leaf, from, until) in level {
            for entry in Entries::new(&self.blocks[leaf as usize], &self.geometry) {
                let entry = entry.unwrap();
                if entry.inode != 0 {
                    let hash = hasher.hash(entry.name);
                    assert!(hash >= from & !1 && hash <= until, "{hash:#x} not in {from:#x}..{until:#x}");
                }
            }
        }
    }

    /// Fills in all checksums and verifies them, as a commit and a later read do.
    fn check_sums(&self) {
        let seed = self.geometry.checksum_seed;
        for (logical, block) in self.blocks.iter().enumerate() {
            let mut block = block.to_vec();
            seed.inspect(|&seed| fill_sum(seed, &mut block));
            verify_sum(seed, self.indexed, logical as u32, &block).unwrap();
            if let Some(seed) = seed {
                let shape = Shape::of(&block);
                assert_eq!(shape == Shape::Root, self.indexed && logical == 0);
                // A flipped bit among names, or among the entries of an index, is detected.
                block[12] ^= 4;
                fill_sum(seed, &mut block);
                block[12] ^= 4;
                assert!(verify_sum(Some(seed), self.indexed, logical as u32, &block).is_err());
            }
        }
    }

    fn check(&self, model: &Names) {
        assert_eq!(&self.listed(), model);
        for (name, &(inode, _)) in model {
            assert_eq!(find(self, name).unwrap().inode, inode);
        }
        assert_eq!(is_empty(self).unwrap(), model.is_empty());
        self.check_tree();
        self.check_sums();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>),
    Remove(prop::sample::Index),
    Repoint(prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let byte = any::<u8>().prop_map(|byte| if matches!(byte, 0 | b'/') { b'x' } else { byte });
    let length = prop_oneof![3 => 1..40_usize, 1 => 200..256_usize];
    let name = length.prop_flat_map(move |length| prop::collection::vec(byte.clone(), length));
    let step = prop_oneof![
        5 => name.prop_map(Step::Insert),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        1 => any::<prop::sample::Index>().prop_map(Step::Repoint),
    ];
    prop::collection::vec(step, 1..400)
}

fn kinds() -> impl Strategy<Value = Kinds> {
    let hash = prop_oneof![0..3_u8, Just(COLLIDING)];
    let bits = prop_oneof![4 => Just(10_u32), 2 => Just(12), 1 => Just(16)];
    (bits, any::<[bool; 5]>(), hash).prop_map(|(block_bits, [sums, types, index, large, unsigned], hash)| {
        Kinds { block_bits, sums, types, index, large, hash, unsigned }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn does_as_a_map_does(kinds in kinds(), steps in steps(), room in 1..200_usize) {
        let mut directory = Memory::new(kinds);
        directory.room = room;
        let mut model = Names::new();
        for (number, step) in (100..).zip(steps) {
            // Without file types, a listing shows none.
            let kind = if kinds.types && number % 2 == 0 { Kind::Directory } else { Kind::Regular };
            let pick = |index: &prop::sample::Index, model: &Names| {
                (!model.is_empty()).then(|| model.keys().nth(index.index(model.len())).unwrap().clone())
            };
            match step {
                Step::Insert(name) => {
                    if matches!(&*name, b"." | b"..") || model.contains_key(&name) {
                        continue;
                    }
                    prop_assert!(matches!(find(&directory, &name), Err(Error::NotFound)));
                    match directory.insert(&name, (number, kind)) {
                        Ok(()) => drop(model.insert(name, (number, kind))),
                        Err(Error::NoSpace) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                Step::Remove(index) => {
                    let Some(name) = pick(&index, &model) else { continue };
                    directory.remove(&name);
                    model.remove(&name);
                }
                Step::Repoint(index) => {
                    let Some(name) = pick(&index, &model) else { continue };
                    let found = find(&directory, &name).unwrap();
                    repoint(&mut directory, &found, &Link { name: &name, inode: number, kind }).unwrap();
                    model.insert(name, (number, kind));
                }
            }
        }
        directory.check(&model);
    }
}

/// Inserts many names of a length that soon fills leaves, which splits inner nodes. Stops when the index is full.
fn fill(kinds: Kinds, names: u32, length: usize) -> (Memory, Names) {
    let mut directory = Memory::new(kinds);
    let mut model = Names::new();
    for number in 1..=names {
        let name = format!("{number:0length$}").into_bytes();
        match directory.insert(&name, (number, Kind::Regular)) {
            Ok(()) => drop(model.insert(name, (number, Kind::Regular))),
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    directory.check(&model);
    (directory, model)
}

#[test]
fn fifty_thousand_names_are_added_and_removed() {
    for kinds in [PLAIN, Kinds { block_bits: 12, sums: false, ..PLAIN }] {
        let (mut directory, model) = fill(kinds, 50_000, 20);
        assert_eq!(model.len(), 50_000);
        model.keys().for_each(|name| directory.remove(name));
        directory.check(&Names::new());
        let blocks = directory.blocks.len();
        directory.insert(b"one more", (5, Kind::Regular)).unwrap();
        assert_eq!(directory.blocks.len(), blocks, "free space is reused");
    }
}

#[test]
fn index_grows_to_maximum_depth() {
    let levels = |directory: &Memory| node::info(&directory.blocks[0]).unwrap().indirect_levels;
    let (mut directory, model) = fill(PLAIN, 60_000, 250);
    assert_eq!(levels(&directory), 1);
    assert!(model.len() > 15_000 && model.len() < 60_000, "{} names", model.len());
    // A full leaf does not make the directory full: names that hash to other leaves fit, and removal makes room.
    let name = model.keys().next().unwrap();
    directory.remove(name);
    directory.insert(name, (7, Kind::Fifo)).unwrap();
    let (directory, model) = fill(Kinds { large: true, ..PLAIN }, 60_000, 250);
    assert_eq!((levels(&directory), model.len()), (2, 60_000));
}

#[test]
fn names_of_one_hash_fill_many_leaves() {
    let (directory, model) = fill(Kinds { hash: COLLIDING, ..PLAIN }, 2000, 200);
    assert_eq!(model.len(), 2000);
    assert!(directory.blocks.len() > 400);
}

#[test]
fn name_length_limit_is_255_bytes() {
    let mut directory = Memory::new(PLAIN);
    let name = [b'n'; 256];
    directory.insert(&name[..255], (9, Kind::Regular)).unwrap();
    assert_eq!(find(&directory, &name[..255]).unwrap().inode, 9);
    assert!(matches!(find(&directory, &name), Err(Error::NameTooLong)));
    assert!(matches!(directory.insert(&name, (9, Kind::Regular)), Err(Error::NameTooLong)));
}

#[test]
fn removed_name_is_erased() {
    let mut directory = Memory::new(PLAIN);
    for name in [&b"first"[..], b"secret", b"last"] {
        directory.insert(name, (9, Kind::Regular)).unwrap();
    }
    directory.remove(b"secret");
    assert!(!directory.blocks[0].windows(6).any(|bytes| bytes == b"secret"));
}
