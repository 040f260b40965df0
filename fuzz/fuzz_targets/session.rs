//! Fuzz target: arbitrary bytes as a sequence of messages to a running session. Each message that requires a reply gets one,
//! and the session keeps serving.

#![no_main]

use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use shunt_fuse::{Config, Profile};
use shunt_fuse_abi::{InHeader, Opcode};
use shunt_fuse_mock::Served;
use shunt_fuse_mock::memfs::{Limits, MemFs};

/// One session for the life of the process: starting one costs more than a hundred messages.
static SESSION: OnceLock<Served<MemFs>> = OnceLock::new();
/// Maximum number of messages in one input.
const MAX_MESSAGES: usize = 64;

fn session() -> &'static Served<MemFs> {
    SESSION.get_or_init(|| {
        let limits = Limits { nodes: 256, file: 64 << 10, total: 1 << 20, xattrs: 4096 };
        let config = Config::new(Profile::Passthrough).threads(1, 2);
        Served::new(MemFs::with_limits(limits), config)
    })
}

/// Takes one message: its length (two bytes, of which the top bit makes the header lie about it), opcode, node, extension
/// length, and the rest behind the header.
fn message(bytes: &mut &[u8], unique: u64) -> Option<Vec<u8>> {
    let (head, rest) = bytes.split_at_checked(5)?;
    let length = usize::from(u16::from_le_bytes([head[0], head[1]]) & 0x1fff).min(rest.len());
    let (body, rest) = rest.split_at(length);
    *bytes = rest;
    let mut message = Vec::with_capacity(InHeader::SIZE + length);
    let lie = u32::from(head[1] >> 7);
    message.extend_from_slice(&((InHeader::SIZE + length) as u32 + lie).to_ne_bytes());
    message.extend_from_slice(&u32::from(head[2]).to_ne_bytes());
    message.extend_from_slice(&unique.to_ne_bytes());
    message.extend_from_slice(&u64::from(head[3]).to_ne_bytes());
    message.extend_from_slice(&[0; 12]);
    message.extend_from_slice(&u16::from(head[4] & 3).to_ne_bytes());
    message.extend_from_slice(&[0; 2]);
    message.extend_from_slice(body);
    Some(message)
}

fuzz_target!(|bytes: &[u8]| {
    let kernel = session();
    kernel.fs().reset();
    kernel.fs().plant("file", b"contents").expect("an empty file system");
    let mut rest = bytes;
    let mut due = 0;
    for _ in 0..MAX_MESSAGES {
        let Some(message) = message(&mut rest, kernel.fresh_unique()) else { break };
        let opcode = u32::from_ne_bytes([message[4], message[5], message[6], message[7]]);
        due += usize::from(Opcode::from_raw(opcode).is_none_or(Opcode::has_reply));
        // INTERRUPT may or may not be answered, so its replies would be counted as expected ones.
        if opcode != Opcode::Interrupt.as_raw() {
            kernel.send_raw(&message);
        }
    }
    for left in 0..due {
        assert!(kernel.recv_raw(Duration::from_secs(10)).is_some(), "{left} of {due} answered");
    }
    kernel.getattr(1).expect("the root is there");
    kernel.take_events();
    let violations = kernel.take_violations();
    assert!(violations.is_empty(), "{violations:?}");
});
