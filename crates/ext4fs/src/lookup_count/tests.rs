use super::*;

const TIME: Time = Time { seconds: 5, nanoseconds: 6 };

#[test]
fn what_has_no_name_is_freed_with_the_last_use() {
    let known = LookupCounts::default();
    known.increment(7);
    known.increment(7);
    assert!(!known.unname(7));
    assert!(known.forget(7, 1).is_none());
    assert!(known.forget(7, 1).unwrap().nameless);
    assert!(known.forget(7, 1).is_none());
    assert!(known.unname(8), "the inode had no lookups");
}

#[test]
fn reads_are_remembered_of_what_is_known() {
    let known = LookupCounts::default();
    assert!(!known.note_read(7, TIME));
    known.increment(7);
    assert!(known.note_read(7, TIME));
    assert_eq!((known.read(7), known.take_reads(), known.read(7)), (Some(TIME), vec![(7, TIME)], None));
    assert!(known.note_read(7, TIME));
    assert_eq!(known.forget(7, 1).unwrap().read, Some(TIME));
    known.increment(7);
    assert_eq!(known.read(7), None);
}

#[test]
fn reads_are_remembered_of_so_many() {
    let known = LookupCounts::default();
    let all = (SHARDS * MAX_PENDING_ATIMES) as u32;
    (0..2 * all).for_each(|number| known.increment(number));
    assert_eq!((0..2 * all).filter(|number| known.note_read(*number, TIME)).count(), all as usize);
    let later = Time { seconds: 6, ..TIME };
    assert!(known.note_read(3, later), "a second note uses no more memory");
    assert_eq!(known.read(3), Some(later));
    assert_eq!(known.take_reads().len(), all as usize);
    assert!(known.note_read(2 * all - 1, TIME));
}

#[test]
fn a_new_name_keeps_it() {
    let known = LookupCounts::default();
    known.increment(7);
    assert!(!known.unname(7));
    known.name(7);
    assert!(!known.forget(7, 1).unwrap().nameless);
    known.increment(9);
    assert!(!known.unname(9));
    assert_eq!((known.take_nameless(), known.len()), (vec![9], 0));
}
