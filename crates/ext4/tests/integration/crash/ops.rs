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
    /// As `Unlink`; somebody has it open until the power goes.
    Abandon(&'static str),
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
    Op::Abandon("a"),
];

/// Longer ones: blocks of metadata are freed, and become those of files while the journal still has their copies; and what
/// has no name any more, and lives through several transactions.
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

/// Nearly all there is in the image that is nearly full: what was freed is taken again.
const FILL: usize = 40_000;

/// How many of the longer ones there are. They come first.
pub fn long() -> u64 {
    LONG.len() as u64
}

/// Workloads of so many operations: any of them at each place, each with a sync behind it or not.
pub fn count(length: u32) -> u64 {
    (OPS.len() as u64).pow(length) << length
}

/// A workload by its number: the longer ones, and then all short ones by their length.
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
