//! Operations on names.

use shunt_fuse_abi::Operation as Op;
use shunt_fuse_abi::*;

use super::{Case, case, hex};
use crate::common::name;

pub fn cases() -> Vec<Case> {
    vec![
        case(1, &[b"name\0"], Op::Lookup { name: name(b"name\0") }),
        case(6, &[b"name\0", b"../a b\0"], Op::Symlink { name: name(b"name\0"), target: c"../a b" }),
        case(
            8,
            &[&hex("a4210000 01050000 12000000 00000000"), b"name\0"],
            Op::Mknod {
                arg: MknodIn { mode: 0o20644, rdev: 0x0501, umask: 0o22, padding: 0 },
                name: name(b"name\0"),
            },
        ),
        case(
            9,
            &[&hex("ed010000 12000000"), b"name\0"],
            Op::Mkdir { arg: MkdirIn { mode: 0o755, umask: 0o22 }, name: name(b"name\0") },
        ),
        case(10, &[b"name\0"], Op::Unlink { name: name(b"name\0") }),
        case(11, &[b"name\0"], Op::Rmdir { name: name(b"name\0") }),
        case(
            12,
            &[&hex("07000000 00000000"), b"name\0", b"new\0"],
            Op::Rename { newdir: 7, flags: 0, name: name(b"name\0"), newname: name(b"new\0") },
        ),
        case(13, &[&hex("05000000 00000000"), b"new\0"], Op::Link { oldnodeid: 5, newname: name(b"new\0") }),
        case(
            35,
            &[&hex("42800000 a0810000 17000000 01000000"), b"name\0"],
            Op::Create {
                arg: CreateIn { flags: 0x8042, mode: 0o100640, umask: 0o27, open_flags: 1 },
                name: name(b"name\0"),
            },
        ),
        case(
            45,
            &[&hex("07000000 00000000"), &hex("02000000 00000000"), b"name\0", b"new\0"],
            Op::Rename2 { newdir: 7, flags: 2, name: name(b"name\0"), newname: name(b"new\0") },
        ),
        case(
            51,
            &[&hex("02004100 80810000 3f000000 00000000"), b"/\0"],
            Op::Tmpfile { arg: CreateIn { flags: 0x41_0002, mode: 0o100600, umask: 0o77, open_flags: 0 } },
        ),
        case(5, &[], Op::Readlink),
    ]
}
