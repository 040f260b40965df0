use super::*;

const TIME: Time = Time { seconds: 5, nanoseconds: 6 };

#[test]
fn unlinked_inode_is_freed_with_the_last_lookup() {
    let counts = LookupCounts::default();
    counts.increment(7);
    counts.increment(7);
    assert!(!counts.mark_unlinked(7));
    assert!(counts.forget(7, 1).is_none());
    assert!(counts.forget(7, 1).unwrap().unlinked);
    assert!(counts.forget(7, 1).is_none());
    assert!(counts.mark_unlinked(8), "the inode had no lookups");
}

#[test]
fn access_time_is_pending_only_with_lookups() {
    let counts = LookupCounts::default();
    assert!(!counts.record_atime(7, TIME));
    counts.increment(7);
    assert!(counts.record_atime(7, TIME));
    assert_eq!((counts.atime(7), counts.take_atimes(), counts.atime(7)), (Some(TIME), vec![(7, TIME)], None));
    assert!(counts.record_atime(7, TIME));
    assert_eq!(counts.forget(7, 1).unwrap().atime, Some(TIME));
    counts.increment(7);
    assert_eq!(counts.atime(7), None);
}

#[test]
fn pending_access_times_are_bounded() {
    let counts = LookupCounts::default();
    let all = (SHARDS * MAX_PENDING_ATIMES) as u32;
    (0..2 * all).for_each(|number| counts.increment(number));
    assert_eq!((0..2 * all).filter(|number| counts.record_atime(*number, TIME)).count(), all as usize);
    let later = Time { seconds: 6, ..TIME };
    assert!(counts.record_atime(3, later), "a second note uses no more memory");
    assert_eq!(counts.atime(3), Some(later));
    assert_eq!(counts.take_atimes().len(), all as usize);
    assert!(counts.record_atime(2 * all - 1, TIME));
}

#[test]
fn new_name_keeps_the_inode() {
    let counts = LookupCounts::default();
    counts.increment(7);
    assert!(!counts.mark_unlinked(7));
    counts.name(7);
    assert!(!counts.forget(7, 1).unwrap().unlinked);
    counts.increment(9);
    assert!(!counts.mark_unlinked(9));
    assert_eq!((counts.take_unlinked(), counts.len()), (vec![9], 0));
}
