//! Operations on nodes: attributes, extended attributes, lookup counts.

use shunt_fuse_abi::Operation as Op;
use shunt_fuse_abi::*;

use super::{Case, case, hex};

pub fn cases() -> Vec<Case> {
    vec![
        case(2, &[&hex("03000000 00000000")], Op::Forget { nlookup: 3 }),
        case(
            3,
            &[&hex("01000000 00000000"), &hex("11000000 00000000")],
            Op::Getattr { arg: GetattrIn { getattr_flags: 1, dummy: 0, fh: 0x11 } },
        ),
        case(
            4,
            &[
                &hex("1f000000 00000000"),
                &hex(
                    "01000000 00000000 02000000 00000000 03000000 00000000 04000000 00000000 05000000 00000000 06000000 00000000",
                ),
                &hex("07000000 08000000 09000000 a4010000 00000000 0a000000 0b000000 00000000"),
            ],
            Op::Setattr {
                arg: SetattrIn {
                    valid: 0x1f,
                    padding: 0,
                    fh: 1,
                    size: 2,
                    lock_owner: 3,
                    atime: 4,
                    mtime: 5,
                    ctime: 6,
                    atimensec: 7,
                    mtimensec: 8,
                    ctimensec: 9,
                    mode: 0o644,
                    unused4: 0,
                    uid: 10,
                    gid: 11,
                    unused5: 0,
                },
            },
        ),
        case(34, &[&hex("04000000 00000000")], Op::Access { arg: AccessIn { mask: 4, padding: 0 } }),
        case(
            52,
            &[&hex("01000000 00000000"), &hex("11000000 00000000"), &hex("00200000 ff0f0000")],
            Op::Statx {
                arg: StatxIn { getattr_flags: 1, reserved: 0, fh: 0x11, sx_flags: 0x2000, sx_mask: 0xfff },
            },
        ),
        case(
            42,
            &[
                &hex("02000000 00000000"),
                &hex("05000000 00000000 01000000 00000000"),
                &hex("06000000 00000000 09000000 00000000"),
            ],
            Op::BatchForget {
                items: Items::new(&[
                    ForgetOne { nodeid: 5, nlookup: 1 },
                    ForgetOne { nodeid: 6, nlookup: 9 },
                ]),
            },
        ),
        case(
            21,
            &[&hex("03000000 01000000"), b"user.x\0", b"\0ab"],
            Op::Setxattr {
                arg: SetxattrIn { size: 3, flags: 1, setxattr_flags: 0, padding: 0 },
                name: c"user.x",
                value: b"\0ab",
            },
        ),
        case(
            22,
            &[&hex("40000000 00000000"), b"user.x\0"],
            Op::Getxattr { arg: GetxattrIn { size: 64, padding: 0 }, name: c"user.x" },
        ),
        case(23, &[&hex("40000000 00000000")], Op::Listxattr { arg: GetxattrIn { size: 64, padding: 0 } }),
        case(24, &[b"user.x\0"], Op::Removexattr { name: c"user.x" }),
    ]
}
