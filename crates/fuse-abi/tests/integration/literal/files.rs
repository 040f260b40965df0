//! Operations on open files and directories.

use shunt_fuse_abi::Operation as Op;
use shunt_fuse_abi::*;

use super::{Case, case, hex};

pub fn cases() -> Vec<Case> {
    vec![
        case(14, &[&hex("02800000 01000000")], Op::Open { arg: OpenIn { flags: 0x8002, open_flags: 1 } }),
        case(
            15,
            &[&hex(
                "01000000 00000000 00100000 00000000 00020000 02000000 03000000 00000000 00800000 00000000",
            )],
            Op::Read {
                arg: ReadIn {
                    fh: 1,
                    offset: 4096,
                    size: 512,
                    read_flags: 2,
                    lock_owner: 3,
                    flags: 0x8000,
                    padding: 0,
                },
            },
        ),
        case(
            16,
            &[
                &hex(
                    "01000000 00000000 00100000 00000000 05000000 04000000 03000000 00000000 01800000 00000000",
                ),
                b"hello",
            ],
            Op::Write {
                arg: WriteIn {
                    fh: 1,
                    offset: 4096,
                    size: 5,
                    write_flags: 4,
                    lock_owner: 3,
                    flags: 0x8001,
                    padding: 0,
                },
                data: b"hello",
            },
        ),
        case(
            18,
            &[&hex("01000000 00000000 00800000 02000000 03000000 00000000")],
            Op::Release { arg: ReleaseIn { fh: 1, flags: 0x8000, release_flags: 2, lock_owner: 3 } },
        ),
        case(
            20,
            &[&hex("01000000 00000000 01000000 00000000")],
            Op::Fsync { arg: FsyncIn { fh: 1, fsync_flags: 1, padding: 0 } },
        ),
        case(
            25,
            &[&hex("01000000 00000000 00000000 00000000 03000000 00000000")],
            Op::Flush { arg: FlushIn { fh: 1, unused: 0, padding: 0, lock_owner: 3 } },
        ),
        case(
            27,
            &[&hex("00800100 00000000")],
            Op::Opendir { arg: OpenIn { flags: 0x1_8000, open_flags: 0 } },
        ),
        case(
            28,
            &[&hex(
                "01000000 00000000 00100000 00000000 00020000 02000000 03000000 00000000 00800000 00000000",
            )],
            Op::Readdir {
                arg: ReadIn {
                    fh: 1,
                    offset: 4096,
                    size: 512,
                    read_flags: 2,
                    lock_owner: 3,
                    flags: 0x8000,
                    padding: 0,
                },
            },
        ),
        case(
            29,
            &[&hex("01000000 00000000 00800000 02000000 03000000 00000000")],
            Op::Releasedir { arg: ReleaseIn { fh: 1, flags: 0x8000, release_flags: 2, lock_owner: 3 } },
        ),
        case(
            30,
            &[&hex("01000000 00000000 01000000 00000000")],
            Op::Fsyncdir { arg: FsyncIn { fh: 1, fsync_flags: 1, padding: 0 } },
        ),
        case(
            44,
            &[&hex(
                "01000000 00000000 00100000 00000000 00020000 02000000 03000000 00000000 00800000 00000000",
            )],
            Op::Readdirplus {
                arg: ReadIn {
                    fh: 1,
                    offset: 4096,
                    size: 512,
                    read_flags: 2,
                    lock_owner: 3,
                    flags: 0x8000,
                    padding: 0,
                },
            },
        ),
        case(
            31,
            &[&hex(
                "01000000 00000000 02000000 00000000 00000000 00000000 ffffffff ffffff7f 01000000 4d000000 01000000 00000000",
            )],
            Op::Getlk {
                arg: LkIn {
                    fh: 1,
                    owner: 2,
                    lk: FileLock { start: 0, end: i64::MAX as u64, r#type: 1, pid: 77 },
                    lk_flags: 1,
                    padding: 0,
                },
            },
        ),
        case(
            32,
            &[&hex(
                "01000000 00000000 02000000 00000000 00000000 00000000 ffffffff ffffff7f 01000000 4d000000 01000000 00000000",
            )],
            Op::Setlk {
                arg: LkIn {
                    fh: 1,
                    owner: 2,
                    lk: FileLock { start: 0, end: i64::MAX as u64, r#type: 1, pid: 77 },
                    lk_flags: 1,
                    padding: 0,
                },
            },
        ),
        case(
            33,
            &[&hex(
                "01000000 00000000 02000000 00000000 00000000 00000000 ffffffff ffffff7f 01000000 4d000000 01000000 00000000",
            )],
            Op::Setlkw {
                arg: LkIn {
                    fh: 1,
                    owner: 2,
                    lk: FileLock { start: 0, end: i64::MAX as u64, r#type: 1, pid: 77 },
                    lk_flags: 1,
                    padding: 0,
                },
            },
        ),
        case(
            43,
            &[&hex("01000000 00000000 0a000000 00000000 14000000 00000000 03000000 00000000")],
            Op::Fallocate { arg: FallocateIn { fh: 1, offset: 10, length: 20, mode: 3, padding: 0 } },
        ),
        case(
            46,
            &[&hex("01000000 00000000 0a000000 00000000 04000000 00000000")],
            Op::Lseek { arg: LseekIn { fh: 1, offset: 10, whence: 4, padding: 0 } },
        ),
        case(
            47,
            &[&hex(
                "01000000 00000000 02000000 00000000 03000000 00000000 04000000 00000000 05000000 00000000 06000000 00000000 00000000 00000000",
            )],
            Op::CopyFileRange {
                arg: CopyFileRangeIn {
                    fh_in: 1,
                    off_in: 2,
                    nodeid_out: 3,
                    fh_out: 4,
                    off_out: 5,
                    len: 6,
                    flags: 0,
                },
            },
        ),
        case(
            53,
            &[&hex(
                "01000000 00000000 02000000 00000000 03000000 00000000 04000000 00000000 05000000 00000000 06000000 00000000 00000000 00000000",
            )],
            Op::CopyFileRange64 {
                arg: CopyFileRangeIn {
                    fh_in: 1,
                    off_in: 2,
                    nodeid_out: 3,
                    fh_out: 4,
                    off_out: 5,
                    len: 6,
                    flags: 0,
                },
            },
        ),
    ]
}
