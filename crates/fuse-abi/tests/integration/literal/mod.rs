//! One literal message per opcode, as a kernel on a little-endian machine sends it.
#![cfg(target_endian = "little")]

mod files;
mod misc;
mod names;
mod nodes;

use shunt_fuse_abi::{InHeader, Opcode, Operation, ParseContext, Request, RequestBuilder, SetxattrIn};

/// A message and the operation that it encodes.
pub struct Case {
    raw: Vec<u8>,
    operation: Operation<'static>,
}

/// Decodes hexadecimal digits; spaces are ignored.
pub fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// Makes a message with this opcode and body, id 0x0102030405060708, node 9, user 1000, group 100, process 4321.
pub fn case(opcode: u32, body: &[&[u8]], operation: Operation<'static>) -> Case {
    Case { raw: message(opcode, body), operation }
}

fn message(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let len = (40 + body.len() as u32).to_le_bytes();
    let rest = hex("08070605 04030201 09000000 00000000 e8030000 64000000 e1100000 0000 0000");
    [&len[..], &opcode.to_le_bytes(), &rest, &body].concat()
}

#[test]
fn the_header_is_read() {
    let raw =
        hex("28000000 11000000 08070605 04030281 09000000 00000000 e8030000 64000000 e1100000 0000 0000");
    let request = Request::parse(&raw, &ParseContext::default()).unwrap();
    let expected = InHeader {
        len: 40,
        opcode: 17,
        unique: 0x8102_0304_0506_0708,
        nodeid: 9,
        uid: 1000,
        gid: 100,
        pid: 4321,
        total_extlen: 0,
        padding: 0,
    };
    assert_eq!(request.header, expected);
    assert!(request.header.is_resend());
    assert_eq!(request.header.request_id(), 0x8102_0304_0506_0708);
    assert_eq!(request.header.original_id(), 0x0102_0304_0506_0708);
}

#[test]
fn every_opcode_is_parsed_and_built() {
    let cases = [names::cases(), nodes::cases(), files::cases(), misc::cases()].into_iter().flatten();
    let mut seen = vec![false; Opcode::COUNT];
    for Case { raw, operation } in cases {
        let request = Request::parse(&raw, &ParseContext::default())
            .unwrap_or_else(|error| panic!("{}: {error}", operation.opcode()));
        assert_eq!(request.operation, operation);
        assert!(!request.header.is_resend());
        let built = RequestBuilder::new(0x0102_0304_0506_0708, 9).caller(1000, 100, 4321).build(&operation);
        assert_eq!(built, raw, "{}", operation.opcode());
        seen[operation.opcode().index()] = true;
    }
    assert_eq!(seen, vec![true; Opcode::COUNT]);
}

#[test]
fn setxattr_in_its_long_form() {
    let raw = message(21, &[&hex("02000000 01000000 01000000 00000000"), b"user.x\0", b"hi"]);
    let ctx = ParseContext { setxattr_ext: true, ..ParseContext::default() };
    let request = Request::parse(&raw, &ctx).unwrap();
    let arg = SetxattrIn { size: 2, flags: 1, setxattr_flags: 1, padding: 0 };
    assert_eq!(request.operation, Operation::Setxattr { arg, name: c"user.x", value: b"hi" });
    assert_eq!(request.to_bytes(true), raw);
}

#[test]
fn init_of_old_and_of_future_kernels() {
    let full = hex("07000000 2d000000 00000200 fbffff73 ff070000").into_iter().chain([0; 44]);
    let full: Vec<u8> = full.collect();
    for (len, flags, flags2) in
        [(8, 0, 0), (16, 0x73ff_fffb, 0), (64, 0x73ff_fffb, 0x7ff), (72, 0x73ff_fffb, 0x7ff)]
    {
        let mut body = full.clone();
        body.resize(len, 0xaa);
        let raw = message(26, &[&body]);
        let request = Request::parse(&raw, &ParseContext::default()).unwrap();
        let Operation::Init { arg } = request.operation else { panic!("{:?}", request.operation) };
        assert_eq!((arg.major, arg.minor, arg.flags, arg.flags2), (7, 45, flags, flags2), "{len}");
    }
    assert!(Request::parse(&message(26, &[&full[..7]]), &ParseContext::default()).is_err());
}

#[test]
fn the_head_of_a_write() {
    let arg =
        hex("01000000 00000000 00100000 00000000 00000100 00000000 00000000 00000000 00000000 00000000");
    let mut raw = message(16, &[&arg]);
    raw[..4].copy_from_slice(&(80_u32 + 65536).to_le_bytes());
    let (header, arg) = Request::parse_write_head(&raw).unwrap();
    assert_eq!((header.nodeid, arg.offset, arg.size), (9, 4096, 65536));
    raw[0] += 1;
    assert!(Request::parse_write_head(&raw).is_err(), "header and size differ");
    raw[..4].copy_from_slice(&79_u32.to_le_bytes());
    raw[56..60].fill(0);
    assert!(Request::parse_write_head(&raw).is_err(), "header shorter than the head");
    raw[4] = 15;
    assert!(Request::parse_write_head(&raw).is_err(), "not a WRITE");
}

/// The short arguments of the protocol before 7.9 and 7.12.
#[test]
fn arguments_of_old_kernels() {
    let old = ParseContext { minor: 8, ..ParseContext::default() };
    let parse = |raw: &[u8]| Request::parse(raw, &old).map(|r| r.operation.opcode());
    assert_eq!(parse(&message(3, &[])), Ok(Opcode::Getattr));
    assert_eq!(parse(&message(15, &[&[1; 24]])), Ok(Opcode::Read));
    assert_eq!(parse(&message(16, &[&[0; 24]])), Ok(Opcode::Write));
    assert_eq!(parse(&message(8, &[&[1; 8], b"n\0"])), Ok(Opcode::Mknod));
    assert_eq!(parse(&message(35, &[&[1; 8], b"n\0"])), Ok(Opcode::Create));
}
