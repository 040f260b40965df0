//! Workloads: all short sequences of operations, with and without a sync behind each, by their number.

/// An operation. Paths are those of a few names, so that operations meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Create(&'static str),
    Mkdir(&'static str),
    Symlink(&'static str),
    /// From an offset on, so many bytes.
    Write(&'static str, usize, usize),
    /// Behind the end, so many bytes.
    Append(&'static str, usize),
    Truncate(&'static str, usize),
    Punch(&'static str, usize, usize),
    /// Room behind the end that is never written.
    Reserve(&'static str, usize),
    Xattr(&'static str, usize),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    /// What was done before lasts.
    Sync,
}

/// In every image there are the files `a` and `d/x`, the empty directory `e`, and `d`.
pub const OPS: &[Op] = &[
    Op::Append("a", 1500),
    Op::Create("b"),
    Op::Unlink("a"),
    Op::Rename("a", "b"),
    Op::Truncate("a", 700),
    Op::Write("b", 0, 3000),
    Op::Rename("b", "a"),
    Op::Link("a", "d/y"),
    Op::Mkdir("f"),
    Op::Rename("d", "f"),
    Op::Unlink("d/x"),
    Op::Write("a", 100, 2000),
    Op::Rename("a", "d/x"),
    Op::Xattr("a", 40),
    Op::Rmdir("e"),
    Op::Rename("d/x", "e/x"),
    Op::Truncate("a", 9000),
    Op::Write("a", 20_000, 1100),
    Op::Symlink("b"),
    Op::Exchange("a", "d/x"),
    Op::Truncate("a", 0),
    Op::Create("d/y"),
    Op::Punch("a", 1024, 2048),
    Op::Append("d/x", 5000),
    Op::Reserve("a", 8000),
    Op::Xattr("b", 500),
    Op::Rename("e", "f"),
    Op::Rename("f", "d/y"),
    Op::Unlink("b"),
    Op::Create("e/x"),
];

/// Workloads of so many operations: any of them at each place, each with a sync behind it or not.
pub fn count(length: u32) -> u64 {
    (OPS.len() as u64).pow(length) << length
}

/// A workload by its number; short ones come first.
pub fn workload(mut number: u64) -> Vec<Op> {
    let mut length = 1;
    while number >= count(length) {
        number -= count(length);
        length += 1;
    }
    let mut ops = Vec::new();
    for _ in 0..length {
        ops.push(OPS[(number % OPS.len() as u64) as usize]);
        number /= OPS.len() as u64;
        if number % 2 == 1 {
            ops.push(Op::Sync);
        }
        number /= 2;
    }
    ops
}

#[test]
fn every_workload_has_a_number() {
    let all: std::collections::HashSet<String> =
        (0..count(1) + count(2)).map(|number| format!("{:?}", workload(number))).collect();
    assert_eq!(all.len() as u64, count(1) + count(2));
    assert_eq!(workload(count(1) + count(2)).iter().filter(|&&op| op != Op::Sync).count(), 3);
}
