use super::sparse::NEIGHBOURS;
use super::*;

#[test]
fn the_last_reference_is_reported_once() {
    let mut counts = ReferenceCounts::<u64>::default();
    counts.add(7);
    counts.add(7);
    counts.add(1 << 40);
    assert_eq!((counts.len(), counts.numbers()), (2, vec![7, 1 << 40]));
    assert!(!counts.remove(7, 1));
    assert!(counts.contains(7));
    assert!(counts.remove(7, 5), "more references removed than added");
    assert!(!counts.remove(7, 1));
    assert!(!counts.contains(7) && counts.remove(1 << 40, 1) && counts.is_empty());
    counts.set(3, 300);
    counts.set(3, 0);
    counts.set(4, 2);
    assert_eq!((counts.get(3), counts.get(4), counts.len()), (0, 2, 1));
}

/// Size of a table with room for this many groups: one control byte for each, and those that one probe reads.
const fn table(groups: usize) -> usize {
    let probed = if cfg!(target_feature = "sse2") { 16 } else { 8 };
    groups * (size_of::<(u32, [u8; NEIGHBOURS as usize])>() + 1) + probed
}

/// A number costs less than four bytes, or seven where its count is in the hundreds.
#[test]
fn a_count_costs_few_bytes() {
    const NUMBERS: u32 = 31_250;
    let mut counts = ReferenceCounts::<u32>::default();
    (0..NUMBERS).for_each(|number| counts.add(number));
    assert_eq!((counts.len(), counts.counts.bytes()), (NUMBERS.into(), table(8_192)));
    (0..NUMBERS).for_each(|number| (1..257).for_each(|_| counts.add(number)));
    assert_eq!(counts.counts.bytes(), 2 * table(8_192) + size_of::<SparseCounts<u32>>());
    assert!((0..NUMBERS).all(|number| counts.remove(number, 257)));
    assert!(counts.is_empty());
    assert!(counts.counts.bytes() < 1 << 10, "{}", counts.counts.bytes());
}

/// The most expensive case: each number is the only one of its group.
#[test]
fn one_alone_costs_no_more_than_thirty_bytes() {
    const NUMBERS: u32 = 3_585;
    let mut counts = ReferenceCounts::<u32>::default();
    (0..NUMBERS).for_each(|number| counts.add(number * u32::from(NEIGHBOURS)));
    assert_eq!(counts.counts.bytes(), table(8_192));
    assert!(counts.counts.bytes() <= NUMBERS as usize * 30);
}
