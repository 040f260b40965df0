//! Random operations.

use proptest::prelude::*;
use shunt_ext4::{Fallocate, SetMode};

/// Rename mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    Keep,
    Exchange,
    Whiteout,
}

/// Kind of a new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    File,
    Short,
    Long,
    Device,
}

/// An operation. Operations on content take a path, or a file that is held open.
#[derive(Debug, Clone)]
pub enum Op {
    Make(String, Kind),
    Link(String, String),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    /// Offset, length, and fill byte.
    Write(String, u64, usize, u8),
    Truncate(String, u64),
    Fallocate(String, Fallocate, u64, u64),
    SetXattr(String, String, usize, SetMode),
    RemoveXattr(String, String),
    Permissions(String, u16),
    /// Holds a file open: it stays while it has no name.
    Hold(String),
    /// Creates an unnamed file, held open.
    Nameless,
    /// Links the file held longest.
    Name(String),
    /// Closes the file held longest.
    Release,
    Sync,
    /// Closes the file system and opens it again, releasing held files.
    Reopen,
    /// Power failure after a sync.
    Crash,
    /// The end of the process: another one continues with its memory. Files stay open.
    Kill,
}

/// Generates offsets around a few positions, so that ranges overlap; some are multiples of a block, as certain operations
/// require.
fn offset() -> impl Strategy<Value = u64> {
    let base = prop_oneof![Just(0_u64), Just(12 << 10), Just(48 << 10), Just(268 << 10), Just(2 << 20)];
    (base, prop_oneof![2 => (0..32_u64).prop_map(|n| n * 1024), 1 => 0..40_000_u64]).prop_map(|(a, b)| a + b)
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![3 => (1..20_u64).prop_map(|n| n * 1024), 2 => 1..3000_u64, 1 => 1..60_000_u64]
}

fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![8 => "[abc]", 1 => "[de]{70}"];
    proptest::collection::vec(name, 1..4).prop_map(|parts| parts.join("/"))
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        4 => Just(Kind::Directory), 6 => Just(Kind::File), 1 => Just(Kind::Short), 1 => Just(Kind::Long),
        1 => Just(Kind::Device)
    ];
    let how = prop_oneof![
        3 => Just(RenameMode::Replace), 1 => Just(RenameMode::Keep), 1 => Just(RenameMode::Exchange), 1 => Just(RenameMode::Whiteout)
    ];
    let what = prop_oneof![
        1 => Just(Fallocate::Allocate),
        1 => Just(Fallocate::KeepSize),
        3 => Just(Fallocate::Punch),
        1 => any::<bool>().prop_map(|keep_size| Fallocate::Zero { keep_size }),
        2 => Just(Fallocate::Collapse),
        2 => Just(Fallocate::Insert),
    ];
    let xattr = || "(user\\.[ab]|trusted\\.c{1,30})";
    let mode =
        prop_oneof![3 => Just(SetMode::Either), 1 => Just(SetMode::Create), 1 => Just(SetMode::Replace)];
    let names = prop_oneof![
        6 => (path(), kind).prop_map(|(path, kind)| Op::Make(path, kind)),
        2 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => path().prop_map(Op::Unlink),
        1 => path().prop_map(Op::Rmdir),
        5 => (path(), path(), how).prop_map(|(from, to, how)| Op::Rename(from, to, how)),
    ];
    let data = prop_oneof![
        6 => (path(), offset(), length(), 1..=255_u8).prop_map(|(p, o, l, b)| Op::Write(p, o, l as usize, b)),
        2 => (path(), offset()).prop_map(|(path, size)| Op::Truncate(path, size)),
        4 => (path(), what, offset(), length()).prop_map(|(p, w, o, l)| Op::Fallocate(p, w, o, l)),
    ];
    let attributes = prop_oneof![
        3 => (path(), xattr(), 0..200_usize, mode).prop_map(|(p, n, s, m)| Op::SetXattr(p, n, s, m)),
        1 => (path(), xattr()).prop_map(|(path, name)| Op::RemoveXattr(path, name)),
        1 => (path(), 0..0o10000_u16).prop_map(|(path, mode)| Op::Permissions(path, mode)),
    ];
    let rest = prop_oneof![
        3 => path().prop_map(Op::Hold), 2 => Just(Op::Nameless), 2 => path().prop_map(Op::Name),
        3 => Just(Op::Release), 2 => Just(Op::Sync), 1 => Just(Op::Reopen), 1 => Just(Op::Crash),
        3 => Just(Op::Kill)
    ];
    prop_oneof![8 => names, 8 => data, 3 => attributes, 3 => rest]
}

pub fn ops(max: usize) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(), 1..max)
}
