//! All other operations.

use shunt_fuse_abi::Operation as Op;
use shunt_fuse_abi::*;

use super::{Case, case, hex};

pub fn cases() -> Vec<Case> {
    vec![
        case(17, &[], Op::Statfs),
        case(
            26,
            &[&hex(
                "07000000 2d000000 00000200 fbffff73 ff070000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000",
            )],
            Op::Init {
                arg: InitIn {
                    major: 7,
                    minor: 45,
                    max_readahead: 131_072,
                    flags: 0x73ff_fffb,
                    flags2: 0x7ff,
                    unused: [0; 11],
                },
            },
        ),
        case(36, &[&hex("34120000 00000000")], Op::Interrupt { unique: 0x1234 }),
        case(
            37,
            &[&hex("09000000 00000000 00100000 00000000")],
            Op::Bmap { arg: BmapIn { block: 9, blocksize: 4096, padding: 0 } },
        ),
        case(38, &[], Op::Destroy),
        case(
            39,
            &[&hex("01000000 00000000 04000000 01540000 fe7f0000 00000000 03000000 3c000000"), b"abc"],
            Op::Ioctl {
                arg: IoctlIn { fh: 1, flags: 4, cmd: 0x5401, arg: 0x7ffe, in_size: 3, out_size: 60 },
                data: b"abc",
            },
        ),
        case(
            40,
            &[&hex("01000000 00000000 02000000 00000000 01000000 05000000")],
            Op::Poll { arg: PollIn { fh: 1, kh: 2, flags: 1, events: 5 } },
        ),
        case(
            41,
            &[
                &hex(
                    "00000000 00000000 08000000 00000000 02000000 00000000 00000000 00000000 00000000 00000000",
                ),
                b"hi",
            ],
            Op::NotifyReply {
                arg: NotifyRetrieveIn { dummy1: 0, offset: 8, size: 2, dummy2: 0, dummy3: 0, dummy4: 0 },
                data: b"hi",
            },
        ),
        case(
            48,
            &[&hex(
                "01000000 00000000 02000000 00000000 03000000 00000000 01000000 00000000 05000000 00000000",
            )],
            Op::Setupmapping { arg: SetupmappingIn { fh: 1, foffset: 2, len: 3, flags: 1, moffset: 5 } },
        ),
        case(
            49,
            &[&hex("01000000"), &hex("05000000 00000000 06000000 00000000")],
            Op::Removemapping { items: Items::new(&[RemovemappingOne { moffset: 5, len: 6 }]) },
        ),
        case(50, &[&hex("00000000 00000000")], Op::Syncfs),
    ]
}
