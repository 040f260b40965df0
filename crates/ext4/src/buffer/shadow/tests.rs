use std::sync::Arc;

use zerocopy::FromZeros as _;

use super::*;
use crate::buffer::tests::geometry;
use crate::superblock::Geometry;

const BLOCK: usize = 4096;

fn memory() -> SharedMemory {
    Arc::new(<[AtomicU64]>::new_box_zeroed_with_elems(SHADOW_WORDS).unwrap())
}

/// Publishes whole blocks of a byte, and freed blocks.
fn publish(shadow: &Shadow, changes: &[(u64, Option<u8>)], outcome: Option<(Operation, u64)>) {
    let contents: Vec<(u64, Option<Vec<u8>>)> =
        changes.iter().map(|(block, byte)| (*block, byte.map(|byte| vec![byte; BLOCK]))).collect();
    shadow.publish(contents.iter().map(|(block, content)| (*block, content.as_deref())), outcome);
}

/// Returns the blocks that a process which continues finds, with the byte that fills them.
fn found(memory: &SharedMemory) -> Vec<(u64, Option<u8>)> {
    let (_, saved) = Shadow::inherit(memory.clone(), &geometry(2048)).unwrap();
    let byte = |content: Vec<u8>| {
        assert!(content.len() == BLOCK && content.iter().all(|byte| *byte == content[0]));
        content[0]
    };
    let mut blocks: Vec<_> =
        saved.blocks.into_iter().map(|(block, content)| (block, content.map(byte))).collect();
    blocks.sort_unstable();
    blocks
}

#[test]
fn the_last_published_content_counts() {
    let memory = memory();
    let shadow = Shadow::new(memory.clone(), 12).unwrap();
    assert_eq!(found(&memory), []);
    publish(&shadow, &[(5, Some(1)), (6, Some(1))], None);
    publish(&shadow, &[(6, Some(2)), (7, None)], None);
    assert_eq!(found(&memory), [(5, Some(1)), (6, Some(2)), (7, None)]);
    let first = shadow.freeze();
    publish(&shadow, &[(5, Some(3))], None);
    assert_eq!(found(&memory), [(5, Some(3)), (6, Some(2)), (7, None)], "during a commit");
    shadow.committed(first);
    assert_eq!(found(&memory), [(5, Some(3))]);
    // Slots are used again: more changes than there are slots.
    for round in 0..20_000_u32 {
        publish(&shadow, &[(5, Some(round as u8)), (9, Some(1))], None);
    }
    assert_eq!(found(&memory), [(5, Some(19_999_u32 as u8)), (9, Some(1))]);
}

/// A process that dies while it publishes leaves what was published before.
#[test]
fn what_is_not_published_does_not_count() {
    let memory = memory();
    let shadow = Shadow::new(memory.clone(), 12).unwrap();
    publish(&shadow, &[(5, Some(1))], None);
    shadow.fill(9, 5, 2, Some(&[9; BLOCK]));
    shadow.fill(10, 6, 2, Some(&[9; BLOCK]));
    assert_eq!(found(&memory), [(5, Some(1))]);
    // Nor later, when its sequence number is published by another process.
    let (shadow, _) = Shadow::inherit(memory.clone(), &geometry(2048)).unwrap();
    publish(&shadow, &[(7, Some(2))], None);
    assert_eq!(found(&memory), [(5, Some(1)), (7, Some(2))]);
}

#[test]
fn outcomes_are_published_with_the_changes_and_expire() {
    let memory = memory();
    let shadow = Shadow::new(memory.clone(), 12).unwrap();
    let operation = |request| Operation { request, slot: request as usize, earlier: None };
    publish(&shadow, &[(5, Some(1))], Some((operation(3), 77)));
    let outcomes = || {
        let (shadow, saved) = Shadow::inherit(memory.clone(), &geometry(2048)).unwrap();
        (shadow, saved.outcomes)
    };
    let expected = |age| [Outcome { request: 3, slot: 3, age, value: 77 }];
    let (next, found) = outcomes();
    assert_eq!(found, expected(1));
    // Committed changes do not end it: the reply may be missing.
    let sequence = next.freeze();
    next.committed(sequence);
    assert_eq!(outcomes().1, expected(1));
    let mut shadow = next;
    for generation in 1..=9 {
        publish(&shadow, &[(5, Some(1))], Some((operation(100 + generation), 0)));
        let (next, found) = outcomes();
        let age = found.iter().find(|outcome| outcome.request == 3).map(|outcome| outcome.age);
        assert_eq!(age, (generation < 8).then_some(generation + 1));
        shadow = next;
    }
}

#[test]
fn unusable_memory_is_refused() {
    let refused =
        |memory: &SharedMemory, blocks: usize| Shadow::inherit(memory.clone(), &geometry(blocks)).is_err();
    let fresh = memory();
    assert!(refused(&fresh, 2048), "memory that nobody prepared");
    let shadow = Shadow::new(fresh.clone(), 12).unwrap();
    publish(&shadow, &[(2000, Some(1))], None);
    assert!(!refused(&fresh, 2048));
    assert!(refused(&fresh, 1000), "a block behind the end");
    shadow.abort();
    assert!(refused(&fresh, 2048), "an aborted transaction");
    let other = memory();
    drop(Shadow::new(other.clone(), 10).unwrap());
    assert!(refused(&other, 2048), "another block size");
}

/// Without room a part of the changes is missing, until everything is committed.
#[test]
fn overflow_is_refused_until_the_next_commit() {
    let memory = memory();
    let shadow = Shadow::new(memory.clone(), 16).unwrap();
    let content = vec![1; 1 << 16];
    for block in 1..=u64::from(layout::slots(16)) + 1 {
        shadow.publish([(block, Some(&content[..]))].into_iter(), None);
    }
    let geometry = Geometry { block_bits: 16, block_size: 1 << 16, ..geometry(1 << 20) };
    assert!(Shadow::inherit(memory.clone(), &geometry).is_err());
    let sequence = shadow.freeze();
    shadow.committed(sequence);
    shadow.publish([(7, Some(&content[..]))].into_iter(), None);
    let (_, saved) = Shadow::inherit(memory, &geometry).unwrap();
    assert_eq!(saved.blocks.iter().map(|(block, _)| *block).collect::<Vec<_>>(), [7]);
}
