//! Workloads, by number: all short sequences of operations, with and without a sync after each.

/// An operation. Paths come from a small set, so that operations interact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Create(&'static str),
    Mkdir(&'static str),
    Symlink(&'static str),
    /// Offset and number of bytes.
    Write(&'static str, usize, usize),
    /// Number of bytes to append.
    Append(&'static str, usize),
    Truncate(&'static str, usize),
    Punch(&'static str, usize, usize),
    /// Preallocates this number of bytes behind the end.
    Reserve(&'static str, usize),
    Xattr(&'static str, usize),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    /// `Unlink` of a file that stays open until the power failure.
    Abandon(&'static str),
    Rmdir(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    /// Makes all previous operations durable.
    Sync,
}

/// Operations. Every image contains the files `a` and `d/x`, and the directories `d` and `e`, of which `e` is empty.
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
    Op::Abandon("a"),
];

/// Longer workloads: metadata blocks are freed and reused by files while the journal still has their copies, and unlinked inodes
/// exist for several transactions.
const LONG: &[&[Op]] = &[
    &[
        Op::Mkdir("f"),
        Op::Sync,
        Op::Rmdir("f"),
        Op::Sync,
        Op::Append("a", FILL),
        Op::Sync,
        Op::Append("d/x", 900),
        Op::Sync,
    ],
    &[
        Op::Symlink("b"),
        Op::Sync,
        Op::Unlink("b"),
        Op::Sync,
        Op::Append("d/x", FILL),
        Op::Sync,
        Op::Create("b"),
        Op::Sync,
    ],
    &[
        Op::Xattr("a", 500),
        Op::Sync,
        Op::Unlink("a"),
        Op::Sync,
        Op::Append("d/x", FILL),
        Op::Sync,
        Op::Mkdir("f"),
        Op::Sync,
    ],
    &[Op::Unlink("d/x"), Op::Rmdir("d"), Op::Sync, Op::Append("a", FILL), Op::Sync, Op::Rmdir("e"), Op::Sync],
    &[
        Op::Abandon("a"),
        Op::Sync,
        Op::Create("b"),
        Op::Abandon("d/x"),
        Op::Sync,
        Op::Append("b", 900),
        Op::Abandon("b"),
        Op::Mkdir("f"),
        Op::Sync,
    ],
];

/// Nearly all free space of the nearly full image, so that freed blocks are reused.
const FILL: usize = 40_000;

/// Number of longer workloads. They come first.
pub fn long() -> u64 {
    LONG.len() as u64
}

/// Number of workloads of this length: any operation at each position, each with or without a sync after it.
pub fn count(length: u32) -> u64 {
    (OPS.len() as u64).pow(length) << length
}

/// Returns a workload by number: the longer ones, then all short ones by length.
pub fn workload(number: u64) -> Vec<Op> {
    let Some(mut number) = number.checked_sub(long()) else { return LONG[number as usize].to_vec() };
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
        (long()..long() + count(1) + count(2)).map(|number| format!("{:?}", workload(number))).collect();
    assert_eq!(all.len() as u64, count(1) + count(2));
    assert_eq!(workload(long() + count(1) + count(2)).iter().filter(|&&op| op != Op::Sync).count(), 3);
}
