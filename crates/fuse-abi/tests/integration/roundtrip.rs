//! Property tests: every encoded request decodes to the same operation, and no bytes make the parser panic.

use proptest::collection::vec;
use proptest::prelude::*;
use shunt_fuse_abi::*;

use crate::common::ArbitraryInput;

/// Generates a name and its NUL: no slash, no other NUL, not `.` or `..`.
fn name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no slash, no NUL", |b| !matches!(b, 0 | b'/'));
    vec(byte, 1..=64).prop_filter("no dots", |n| n != b"." && n != b"..").prop_map(|mut n| {
        n.push(0);
        n
    })
}

prop_compose! {
    fn material()(
        arg in any::<[[u8; 32]; 3]>(),
        names in [name(), name()],
        string in name(),
        data in vec(any::<u8>(), 0..200),
        numbers in vec(any::<(u64, u64)>(), 0..20),
    ) -> ArbitraryInput {
        let mut flat = [0; 96];
        flat.copy_from_slice(arg.as_flattened());
        ArbitraryInput::new(flat, names, string, data, &numbers)
    }
}

prop_compose! {
    fn extensions()(
        contexts in vec((name(), vec(any::<u8>(), 0..40)), 0..4),
        groups in vec(any::<u32>(), 0..5),
    ) -> (Vec<(Vec<u8>, Vec<u8>)>, Vec<u32>) {
        (contexts, groups)
    }
}

proptest! {
    #[test]
    fn a_built_request_parses_to_what_it_was(
        (material, (contexts, groups)) in (material(), extensions()),
        setxattr_ext in any::<bool>(),
        (unique, nodeid) in any::<(u64, u64)>(),
        shift in 0_usize..8,
    ) {
        let borrowed: Vec<_> =
            contexts.iter().map(|(n, v)| (std::ffi::CStr::from_bytes_with_nul(n).unwrap(), &v[..])).collect();
        let ext = ExtBuilder::default().security_contexts(&borrowed).groups(&groups);
        let ctx = ParseContext { setxattr_ext, ..ParseContext::default() };
        for &opcode in Opcode::ALL {
            // INIT ignores trailing bytes, but extensions are still split off.
            let operation = material.operation(opcode, setxattr_ext);
            let bytes = RequestBuilder::new(unique, nodeid)
                .caller(1, 2, 3)
                .setxattr_ext(setxattr_ext)
                .extensions(ext.as_bytes())
                .build(&operation);
            // Parsing must not depend on alignment.
            let mut shifted = vec![0; shift];
            shifted.extend_from_slice(&bytes);
            let request = Request::parse(&shifted[shift..], &ctx).unwrap();
            prop_assert_eq!(&request.operation, &operation);
            prop_assert_eq!(request.operation.opcode(), opcode);
            prop_assert_eq!((request.header.unique, request.header.nodeid), (unique, nodeid));
            prop_assert_eq!((request.header.uid, request.header.gid, request.header.pid), (1, 2, 3));
            let seen: Vec<_> = request.ext.security_contexts().map(|c| (c.name, c.value)).collect();
            prop_assert_eq!(&seen, &borrowed);
            prop_assert_eq!(request.ext.supplementary_groups().collect::<Vec<_>>(), groups.clone());
            prop_assert_eq!(request.to_bytes(setxattr_ext), bytes);
        }
    }

    #[test]
    fn a_cut_request_is_an_error(material in material(), cut in 1_usize..200) {
        for &opcode in Opcode::ALL.iter().filter(|o| !matches!(o, Opcode::Init)) {
            let mut bytes = RequestBuilder::new(1, 1).build(&material.operation(opcode, false));
            let left = bytes.len().saturating_sub(cut);
            bytes.truncate(left);
            prop_assert!(Request::parse(&bytes, &ParseContext::default()).is_err());
            // Again with a header that has the new length.
            if let Some(len) = bytes.first_chunk_mut() {
                *len = (left as u32).to_ne_bytes();
            }
            prop_assert!(Request::parse(&bytes, &ParseContext::default()).is_err(), "{}", opcode);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300), opcode in 0_u32..60, extlen in 0_u16..9) {
        let ctx = ParseContext::default();
        let _ = Request::parse(&bytes, &ctx);
        let _ = Request::parse_write_head(&bytes);
        let _ = Extensions::parse(&bytes);
        // Again with a header that lets the parser reach the rest.
        if bytes.len() >= InHeader::SIZE {
            let len = bytes.len() as u32;
            bytes[0..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
            bytes[36..38].copy_from_slice(&extlen.to_ne_bytes());
            for minor in [8, 11, 45] {
                let _ = Request::parse(&bytes, &ParseContext { setxattr_ext: true, minor });
            }
        }
    }

    #[test]
    fn init_flags_survive_both_halves(bits in any::<u64>()) {
        let flags = InitFlags::from_bits_retain(bits) | InitFlags::INIT_EXT;
        let mut out = InitOut::default();
        out.set_init_flags(flags);
        prop_assert_eq!(out.init_flags(), flags);
        let mut input = InitIn::default();
        input.set_init_flags(flags);
        prop_assert_eq!(input.init_flags(), flags);
    }
}
