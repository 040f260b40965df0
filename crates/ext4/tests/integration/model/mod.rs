//! Random operations, compared with a model in memory: names, links, content, holes, preallocation, attributes, unnamed files.
//! Each sequence ends with a remount, e2fsck, and the removal of everything, after which the free space is the same as before.
//!
//! Needs mkfs.ext4 and e2fsck, and no root. In CI (`CI=true`) their absence is a failure. `MODEL_TIME` (seconds) extends the run
//! with other sequences than those of the default run, which are fixed.

mod engine;
mod ops;
mod state;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use engine::Engine;
use ops::{Op, ops};
use state::ModelFs;

const KINDS: [&[&str]; 8] = [
    &["-b", "4096"],
    &["-b", "1024", "-J", "size=1", "-O", "orphan_file,metadata_csum_seed"],
    &["-b", "2048", "-O", "^metadata_csum,uninit_bg", "-J", "size=2"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-b", "1024", "-I", "128", "-J", "size=1"],
    &["-b", "1024", "-O", "^has_journal,^flex_bg"],
    &["-b", "1024", "-g", "1024", "-O", "^64bit,^resize_inode", "-J", "size=1"],
    &["-b", "4096", "-I", "512", "-O", "large_dir,^dir_index"],
];

/// Runs a sequence.
fn agrees(image: &[u8], ops: &[Op]) -> Result<(), TestCaseError> {
    let mut engine = Engine::new(image);
    let block = u64::from(engine.fs().geometry().block_size);
    let extents = engine.fs().kind() == "ext4";
    let journaled = engine.fs().has_journal();
    let (blocks, inodes) = engine.free();
    let mut state = ModelFs::new(block, extents);
    for op in ops {
        // Without a journal, only e2fsck can repair a crash.
        if matches!(op, Op::Crash) && !journaled {
            continue;
        }
        let mut next = state.clone();
        let expected = next.apply(op).is_some();
        let done = engine.apply(op);
        prop_assert!(done.is_ok() == expected, "{:?}: {:?}", op, done);
        if expected {
            state = next;
        }
        if matches!(op, Op::Sync | Op::Reopen | Op::Crash | Op::Kill) {
            engine.is(&state).map_err(|why| TestCaseError::fail(format!("after {op:?}: {why}")))?;
        }
    }
    engine.is(&state).map_err(TestCaseError::fail)?;
    engine.reopen();
    state.free_unlinked();
    engine.is(&state).map_err(|why| TestCaseError::fail(format!("after reopening: {why}")))?;
    engine.clear();
    // The directory that contained everything also occupied a block and an inode.
    prop_assert_eq!(engine.free(), (blocks + 1, inodes + 1));
    engine.reopen();
    Ok(())
}

fn play(kind: usize, cases: u32, limit: usize, seed: u64) {
    let Some(image) = engine::image(KINDS[kind]) else { return };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let result = TestRunner::new_with_rng(config, rng).run(&ops(limit), |ops| agrees(&image, &ops));
    result.unwrap_or_else(|why| panic!("{:?}, seed {seed}: {why}", KINDS[kind]));
}

#[test]
fn random_sequences_on_every_format() {
    for kind in 0..KINDS.len() {
        play(kind, 3, 150, kind as u64);
    }
}

#[test]
#[ignore = "long: make soak"]
fn sequences_without_end() {
    let time = std::env::var("MODEL_TIME").ok().and_then(|time| time.parse().ok()).unwrap_or(60);
    let end = Instant::now() + Duration::from_secs(time);
    let first = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let mut rounds = 0_u64;
    while Instant::now() < end {
        let kind = rounds as usize % KINDS.len();
        // Short sequences interact more often; long ones fill directories.
        let limit = [40, 150, 600][(rounds / KINDS.len() as u64 % 3) as usize];
        play(kind, 12, limit, first.wrapping_add(rounds));
        rounds += 1;
    }
    println!("{} sequences agree", rounds * 12);
}
