//! Fuzz target: parses arbitrary bytes as a request. There is no panic, and a parsed request parses to the same again after
//! serialization.

#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_fuse_abi::dirent::Records;
use shunt_fuse_abi::{InHeader, ParseContext, Request};

fuzz_target!(|bytes: &[u8]| {
    for minor in [8, 11, 45] {
        for setxattr_ext in [false, true] {
            once(bytes, ParseContext { setxattr_ext, minor });
        }
    }
    let _ = Request::parse_write_head(bytes);
    for plus in [false, true] {
        assert!(Records::new(bytes, plus).count() <= bytes.len() / size_of::<shunt_fuse_abi::Dirent>());
    }
});

fn once(bytes: &[u8], ctx: ParseContext) {
    let first = match Request::parse(bytes, &ctx) {
        Ok(request) => request,
        Err(error) => {
            assert!(error.errno() > 0 && !error.to_string().is_empty());
            return;
        }
    };
    assert!(first.ext.security_contexts().count() <= bytes.len() / 8);
    assert!(first.ext.supplementary_groups().count() <= bytes.len() / 4);
    assert!(!format!("{first:?}").is_empty());

    let written = first.to_bytes(ctx.setxattr_ext);
    let current = ParseContext { minor: 45, ..ctx };
    let second = Request::parse(&written, &current).expect("what was written must parse");
    // Only INIT, TMPFILE and the layouts of old kernels change their length.
    assert_eq!(second.header, InHeader { len: second.header.len, ..first.header });
    assert_eq!(second.operation, first.operation);
    assert_eq!(second.ext, first.ext);
    assert_eq!(second.to_bytes(ctx.setxattr_ext), written);
}
