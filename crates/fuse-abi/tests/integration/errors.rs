//! Tests of every kind of malformed request, and of the errno for it.

use shunt_fuse_abi::*;

const EINVAL: i32 = 22;
const ERANGE: i32 = 34;
const ENAMETOOLONG: i32 = 36;
const ENOSYS: i32 = 38;

fn message(opcode: u32, body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    let mut raw = vec![0; InHeader::SIZE];
    raw[..4].copy_from_slice(&(40 + body.len() as u32).to_ne_bytes());
    raw[4..8].copy_from_slice(&opcode.to_ne_bytes());
    raw.extend(body);
    raw
}

fn error(raw: &[u8]) -> ParseError {
    Request::parse(raw, &ParseContext::default()).expect_err("is wrong")
}

#[test]
fn lengths() {
    assert_eq!(error(&[]), ParseError::TooShort { what: MessagePart::Header, want: 40, got: 0 });
    assert_eq!(error(&[0; 39]), ParseError::TooShort { what: MessagePart::Header, want: 40, got: 39 });
    assert_eq!(error(&[0; 40]), ParseError::Length { header: 0, got: 40 });
    let mut long = message(17, &[]);
    long.push(0);
    assert_eq!(error(&long), ParseError::Length { header: 40, got: 41 });
    assert_eq!(error(&message(17, &[b"x"])), ParseError::Trailing { left: 1 });
    assert_eq!(
        error(&message(14, &[b"1234567"])),
        ParseError::TooShort { what: MessagePart::Argument, want: 8, got: 7 }
    );
}

#[test]
fn opcodes() {
    for raw in [0, 7, 19, 54, 4096, 0x1a00_0000, u32::MAX] {
        assert_eq!(error(&message(raw, &[])), ParseError::UnknownOpcode(raw));
        assert_eq!(Opcode::from_raw(raw), None);
    }
    assert_eq!(error(&message(0, &[])).errno(), ENOSYS);
    for (index, &opcode) in Opcode::ALL.iter().enumerate() {
        assert_eq!(opcode.index(), index);
        assert_eq!(Opcode::from_raw(opcode.as_raw()), Some(opcode));
        assert!(opcode.name().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'));
    }
    for code in NotifyCode::ALL {
        assert_eq!(NotifyCode::from_raw(code.as_raw()), Some(*code));
    }
    assert_eq!(
        (NotifyCode::from_raw(0), NotifyCode::from_raw(10), NotifyCode::from_raw(i32::MIN)),
        (None, None, None)
    );
}

#[test]
fn names() {
    let what = MessagePart::Name;
    assert_eq!(error(&message(1, &[])), ParseError::MissingNul { what });
    assert_eq!(error(&message(1, &[b"abc"])), ParseError::MissingNul { what });
    assert_eq!(error(&message(1, &[b"\0"])), ParseError::Empty { what });
    assert_eq!(error(&message(1, &[b"a/b\0"])), ParseError::Slash { what });
    assert_eq!(error(&message(1, &[b"a\0b\0"])), ParseError::Trailing { left: 2 });
    let long = [&[b'x'; 1025][..], b"\0"].concat();
    assert_eq!(error(&message(1, &[&long])), ParseError::TooLong { what, len: 1025, max: 1024 });
    assert_eq!(error(&message(1, &[&long])).errno(), ENAMETOOLONG);
    assert!(Request::parse(&message(1, &[&long[1..]]), &ParseContext::default()).is_ok());

    for dots in [&b".\0"[..], b"..\0"] {
        let raw = message(1, &[dots]);
        let request = Request::parse(&raw, &ParseContext::default()).unwrap();
        let Operation::Lookup { name } = request.operation else { panic!("{request:?}") };
        assert_eq!((name.is_dot(), name.is_dotdot()), (dots.len() == 2, dots.len() == 3));
        assert_eq!(error(&message(10, &[dots])), ParseError::Dots { what });
        assert_eq!(
            error(&message(12, &[&[0; 8], b"a\0", dots])),
            ParseError::Dots { what: MessagePart::NewName }
        );
        assert_eq!(error(&message(13, &[&[0; 8], dots])), ParseError::Dots { what: MessagePart::NewName });
        assert_eq!(error(&message(35, &[&[0; 16], dots])).errno(), EINVAL);
    }
}

#[test]
fn strings() {
    let target = [&[b'x'; 4096][..], b"\0"].concat();
    assert_eq!(error(&message(6, &[b"a\0", &target])).errno(), ENAMETOOLONG);
    assert_eq!(error(&message(6, &[b"a\0"])), ParseError::MissingNul { what: MessagePart::Target });
    let xattr = [&[b'x'; 256][..], b"\0"].concat();
    assert_eq!(error(&message(24, &[&xattr])).errno(), ERANGE);
    assert_eq!(error(&message(24, &[b"\0"])), ParseError::Empty { what: MessagePart::XattrName });
}

#[test]
fn sizes_and_counts() {
    let mut write = [0; 40];
    write[16] = 5;
    let mismatch = |want, got| ParseError::Mismatch { what: MessagePart::Data, want, got };
    assert_eq!(error(&message(16, &[&write, b"four"])), mismatch(5, 4));
    assert_eq!(error(&message(16, &[&write, b"sixsix"])), mismatch(5, 6));
    assert_eq!(error(&message(39, &[&[0xff; 32]])), mismatch(u32::MAX.into(), 0));
    assert_eq!(error(&message(21, &[&[0xff; 8], b"a\0"])), mismatch(u32::MAX.into(), 0));
    let items = |want, got| ParseError::Mismatch { what: MessagePart::Items, want, got };
    assert_eq!(error(&message(42, &[&[0xff; 8], &[0; 16]])), items(u64::from(u32::MAX) * 16, 16));
    assert_eq!(error(&message(49, &[&[0xff; 4], &[0; 15]])), items(u64::from(u32::MAX) * 16, 15));
}

#[test]
fn extensions() {
    let with = |units: u16, body: &[&[u8]]| {
        let mut raw = message(17, body);
        raw[36..38].copy_from_slice(&units.to_ne_bytes());
        raw
    };
    let head = |size: u32, kind: u32| [size.to_ne_bytes(), kind.to_ne_bytes()].concat();
    let wrong = |what, want, got| ParseError::Mismatch { what, want, got };
    assert_eq!(error(&with(1, &[])), ParseError::TooShort { what: MessagePart::Extension, want: 8, got: 0 });
    for size in [0, 7, 9, 16, u32::MAX] {
        assert_eq!(error(&with(1, &[&head(size, 32)])), wrong(MessagePart::Extension, size.into(), 8));
    }
    assert_eq!(error(&with(2, &[&head(16, 32), &head(2, 0)])), wrong(MessagePart::Groups, 8, 4));
    assert_eq!(error(&with(2, &[&head(16, 32), &head(u32::MAX, 0)])).errno(), EINVAL);
    assert!(matches!(
        error(&with(1, &[&head(8, 1)])),
        ParseError::TooShort { what: MessagePart::SecurityContext, .. }
    ));
    let label = |size: u32| with(3, &[&head(24, 1), &head(size, 0), b"a\0bcdefg"]);
    assert!(Request::parse(&label(6), &ParseContext::default()).is_ok());
    assert_eq!(error(&label(7)), wrong(MessagePart::SecurityContext, 7, 6));
    assert_eq!(error(&label(u32::MAX)).errno(), EINVAL);
    // An unknown extension type is skipped.
    let raw = with(3, &[&head(8, 99), &head(16, 32), &head(1, 100)]);
    let request = Request::parse(&raw, &ParseContext::default()).unwrap();
    assert_eq!(request.ext.supplementary_groups().collect::<Vec<_>>(), [100]);
    assert_eq!(request.ext.security_contexts().count(), 0);
}
