//! Tests of requests that no kernel sends: each is answered with an error or ignored, and the session continues.

use std::time::Duration;

use proptest::prelude::*;
use shunt_fuse::{Config, Errno, Profile};
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, Name, Opcode, Operation, RequestBuilder, Wire};
use shunt_fuse_mock::Served;
use shunt_fuse_mock::memfs::{Limits, MemFs};

fn serve() -> Served<MemFs> {
    let limits = Limits { nodes: 1000, file: 1 << 20, total: 8 << 20, xattrs: 8192 };
    let fs = MemFs::with_limits(limits);
    fs.plant("file", b"contents").unwrap();
    Served::new(fs, Config::new(Profile::Passthrough))
}

/// Makes well-formed requests to mutate.
fn seeds() -> Vec<Vec<u8>> {
    let name = Name::new(c"file").unwrap();
    let newname = Name::new(c"new").unwrap();
    let read = abi::ReadIn { fh: 1, size: 4096, ..Default::default() };
    let items = [abi::ForgetOne { nodeid: 2, nlookup: 1 }; 3];
    let operations = [
        Operation::Lookup { name },
        Operation::Getattr { arg: Default::default() },
        Operation::Setattr { arg: abi::SetattrIn { valid: 0x7ff, size: 10, ..Default::default() } },
        Operation::Readlink,
        Operation::Symlink { name: newname, target: c"target" },
        Operation::Mknod { arg: abi::MknodIn { mode: 0o100_644, ..Default::default() }, name: newname },
        Operation::Mkdir { arg: Default::default(), name: newname },
        Operation::Unlink { name },
        Operation::Rename2 { newdir: 1, flags: 0, name, newname },
        Operation::Link { oldnodeid: 2, newname },
        Operation::Open { arg: Default::default() },
        Operation::Read { arg: read },
        Operation::Write { arg: abi::WriteIn { fh: 1, size: 4, ..Default::default() }, data: b"data" },
        Operation::Setxattr {
            arg: abi::SetxattrIn { size: 5, ..Default::default() },
            name: c"user.x",
            value: b"value",
        },
        Operation::Getxattr { arg: abi::GetxattrIn { size: 10, padding: 0 }, name: c"user.x" },
        Operation::Create { arg: Default::default(), name: newname },
        Operation::Readdirplus { arg: read },
        Operation::Ioctl { arg: abi::IoctlIn { in_size: 4, ..Default::default() }, data: b"1234" },
        Operation::BatchForget { items: abi::Items::new(&items) },
        Operation::Interrupt { unique: 2 },
        Operation::NotifyReply { arg: abi::NotifyRetrieveIn { size: 3, ..Default::default() }, data: b"abc" },
        Operation::CopyFileRange {
            arg: abi::CopyFileRangeIn { fh_in: 1, len: u64::MAX, ..Default::default() },
        },
        Operation::Setlkw { arg: Default::default() },
        Operation::Destroy,
    ];
    operations.iter().map(|operation| RequestBuilder::new(0, 1).setxattr_ext(true).build(operation)).collect()
}

/// Gives a message a fresh id and, mostly, a correct length.
fn address(message: &mut [u8], unique: u64, true_length: bool) {
    let length = message.len() as u32;
    if let Some(head) = message.get_mut(..InHeader::SIZE) {
        let mut header = InHeader::read_from_bytes(head).unwrap();
        header.unique = unique;
        if true_length {
            header.len = length;
        }
        head.copy_from_slice(header.as_bytes());
    }
}

/// Reports whether the server must reply.
fn owed(message: &[u8]) -> bool {
    InHeader::read_from_prefix(message)
        .is_some_and(|(header, _)| Opcode::from_raw(header.opcode).is_none_or(Opcode::has_reply))
}

/// Checks that all messages are answered or ignored as required, and that the next valid request is answered.
fn survives(kernel: &Served<MemFs>, messages: &[Vec<u8>]) {
    let mut due = 0;
    for message in messages {
        due += usize::from(owed(message));
        kernel.send_raw(message);
    }
    for left in 0..due {
        let what = || format!("{left} of {due} answered");
        let reply = kernel.recv_raw(Duration::from_secs(10)).unwrap_or_else(|| panic!("{}", what()));
        assert!(reply.len() >= 16);
    }
    // An INTERRUPT with an even id may be answered with EAGAIN at any time.
    while kernel.recv_raw(Duration::ZERO).is_some() {}
    kernel.getattr(1).unwrap();
}

#[test]
fn messages_too_short_for_a_header_are_ignored() {
    let kernel = serve();
    let messages: Vec<_> = (1..40).map(|length| vec![0xff; length]).collect();
    survives(&kernel, &messages);
    kernel.finish();
}

#[test]
fn unknown_operations_get_enosys() {
    let kernel = serve();
    for opcode in [0, 7, 19, 54, 4096, u32::MAX] {
        let header = InHeader { len: 40, opcode, unique: kernel.fresh_unique(), ..InHeader::default() };
        kernel.send_raw(header.as_bytes());
        let reply = kernel.recv_raw(Duration::from_secs(10)).expect("an answer");
        assert_eq!(reply[4..8], (-libc::ENOSYS).to_ne_bytes(), "opcode {opcode}");
    }
    kernel.finish();
}

#[test]
fn a_wrong_length_gets_einval() {
    let kernel = serve();
    for seed in seeds().iter().filter(|seed| owed(seed)) {
        for length in [0, 39, seed.len() as u32 - 1, seed.len() as u32 + 1, u32::MAX] {
            let mut message = seed.clone();
            address(&mut message, kernel.fresh_unique(), true);
            message[..4].copy_from_slice(&length.to_ne_bytes());
            kernel.send_raw(&message);
            let reply = kernel.recv_raw(Duration::from_secs(10)).expect("an answer");
            assert_eq!(reply[4..8], (-libc::EINVAL).to_ne_bytes());
        }
    }
    assert!(kernel.session().statistics().malformed > 0);
    kernel.finish();
}

#[test]
fn every_cut_of_every_request_is_survived() {
    let kernel = serve();
    for seed in seeds() {
        let cuts = (1..=seed.len()).map(|length| {
            let mut message = seed[..length].to_vec();
            address(&mut message, kernel.fresh_unique(), true);
            message
        });
        survives(&kernel, &cuts.collect::<Vec<_>>());
    }
    assert_eq!(kernel.lookup(1, "no such name"), Err(Errno::NOENT));
    kernel.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_requests_are_survived(
        picks in prop::collection::vec((0..24_usize, prop::collection::vec((any::<u16>(), any::<u8>()), 0..6),
            any::<bool>(), 0..40_usize), 1..30),
    ) {
        let kernel = serve();
        let seeds = seeds();
        let messages: Vec<_> = picks.iter().map(|(seed, changes, lie, more)| {
            let mut message = seeds[*seed].clone();
            message.extend(std::iter::repeat_n(0xaa, more.saturating_sub(30)));
            for &(at, byte) in changes {
                let at = usize::from(at) % message.len();
                message[at] = byte;
            }
            address(&mut message, kernel.fresh_unique(), !(*lie && changes.len() > 3));
            message
        }).collect();
        survives(&kernel, &messages);
        kernel.finish();
    }
}
