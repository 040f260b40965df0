use super::*;
use crate::device::MemoryDevice;
use crate::layout::RawSuperblock;

/// The blocks of these tests carry no checksums.
const NO_TRIGGERS: ChecksumTriggers = ChecksumTriggers {
    extents: |_, _| {},
    directory: |_, _| {},
    xattrs: |_, _, _| {},
    orphans: |_, _, _| {},
};

/// A file system of one group, with blocks of 4 KiB.
pub(super) fn geometry(blocks: usize) -> Geometry {
    Geometry {
        block_size: 4096,
        block_bits: 12,
        blocks: blocks as u64,
        first_data_block: 0,
        blocks_per_group: 32768,
        cluster_blocks: 1,
        inodes_per_group: 16,
        inodes: 16,
        inode_size: 256,
        first_inode: 11,
        groups: 1,
        descriptor_size: 32,
        first_meta_bg: None,
        reserved_descriptors: 0,
        backup_groups: None,
        flex_bits: 0,
        compat: crate::layout::Compat::empty(),
        incompat: crate::layout::Incompat::empty(),
        ro_compat: crate::layout::RoCompat::empty(),
        checksum_seed: None,
        uuid: [0; 16],
        hash_seed: [0; 4],
        hash_version: 1,
        unsigned_hash: false,
    }
}

/// A cache on an empty device; its superblock is never read.
fn store(blocks: usize) -> (Arc<MemoryDevice>, MetadataCache) {
    let device = Arc::new(MemoryDevice::new(vec![0; blocks << 12]));
    let geometry = geometry(blocks);
    let raw = zerocopy::FromZeros::new_zeroed();
    let store = MetadataCache::writable(
        device.clone(),
        &geometry,
        RawSuperblock::clone(&raw),
        None,
        0,
        NO_TRIGGERS,
        None,
    );
    (device, store)
}

fn add(store: &MetadataCache, block: u64) {
    let mut handle = store.begin(1).unwrap();
    let change = |bytes: &mut [u8]| {
        let count = u64::from_le_bytes(bytes[..8].try_into().unwrap()) + 1;
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        Ok(())
    };
    handle.change(block, BlockKind::Inodes, |_| Ok(()), change).unwrap();
    handle.complete();
}

#[test]
fn changes_survive_in_a_too_small_cache() {
    let (device, store) = store(2048);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    add(store, 1 + (n * 7 + thread * 13) % 2000);
                    if n % 500 == 0 {
                        store.sync().unwrap();
                    }
                }
            });
        }
    });
    store.sync().unwrap();
    let bytes = device.bytes();
    let sum: u64 =
        (1..2048).map(|block: usize| u64::from_le_bytes(bytes[block << 12..][..8].try_into().unwrap())).sum();
    assert_eq!(sum, 80_000);
}

#[test]
fn snapshot_does_not_change() {
    let (_, store) = store(16);
    let before = store.get(3, BlockKind::Inodes, |_| Ok(())).unwrap();
    add(&store, 3);
    assert_eq!(before[0], 0);
    assert_eq!(store.get(3, BlockKind::Inodes, |_| Ok(())).unwrap()[0], 1);
}

#[test]
fn forgotten_block_is_not_written() {
    let (device, store) = store(16);
    add(&store, 3);
    let mut handle = store.begin(1).unwrap();
    handle.forget(3);
    handle.complete();
    drop(handle);
    store.sync().unwrap();
    assert_eq!(device.bytes()[3 << 12], 0);
}

#[test]
fn incomplete_change_is_never_committed() {
    let (device, store) = store(16);
    add(&store, 3);
    store.sync().unwrap();
    let mut handle = store.begin(1).unwrap();
    let change = |bytes: &mut [u8]| {
        bytes[0] = 9;
        Ok(())
    };
    handle.change(3, BlockKind::Inodes, |_| Ok(()), change).unwrap();
    // A commit that waits for the handle must not take its incomplete change.
    std::thread::scope(|scope| {
        let commit = scope.spawn(|| store.sync());
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(handle);
        assert!(matches!(commit.join().unwrap(), Err(Error::ReadOnly)));
    });
    assert!(matches!(store.begin(1), Err(Error::ReadOnly)));
    assert_eq!(device.bytes()[3 << 12], 1);
}
