//! A bounded fuzz run over the saved corpus: each entry unchanged, then with mutations in a fixed order.
//!
//! `cargo test -p shunt-fuse-abi --test integration corpus:: -- --ignored` writes the seeds again; the other entries are from
//! `cargo fuzz`, see `fuzz/`.

use std::fs;
use std::path::Path;

use shunt_fuse_abi::*;

use crate::common::ArbitraryInput;

const DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");

/// Mutations per entry; the whole run takes seconds even without optimisation.
const ROUNDS: u32 = 4000;

/// A xorshift generator: the same numbers in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Parses a message and, if that worked, encodes and parses it again.
fn check(bytes: &[u8]) -> bool {
    let mut good = false;
    for setxattr_ext in [false, true] {
        let ctx = ParseContext { setxattr_ext, ..ParseContext::default() };
        if let Ok(first) = Request::parse(bytes, &ctx) {
            good = true;
            let written = first.to_bytes(setxattr_ext);
            let second = Request::parse(&written, &ctx).expect("what was written parses");
            assert_eq!(second.operation, first.operation);
            assert_eq!(second.ext, first.ext);
            assert!(first.ext.security_contexts().count() <= bytes.len());
            assert!(first.ext.supplementary_groups().count() <= bytes.len());
        }
    }
    let _ = Request::parse_write_head(bytes);
    good
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Rng) {
    const EDGES: [u8; 8] = [0, 1, 7, 8, 0x7f, 0x80, 0xff, b'/'];
    for _ in 0..=random.below(3) {
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, random.next() as u8),
            2 => {
                let more = random.below(40);
                bytes.extend(random.bytes(more));
            }
            3 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << random.below(8)),
            4 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = EDGES[random.below(8)]),
            _ => bytes.iter_mut().skip(at).take(4).for_each(|b| *b = 0xff),
        }
    }
    // Mostly with a correct length, otherwise only the header would be parsed.
    let len = bytes.len() as u32;
    if random.below(8) != 0
        && let Some(field) = bytes.first_chunk_mut()
    {
        *field = len.to_ne_bytes();
    }
}

#[test]
fn the_corpus_and_its_mutations_never_panic() {
    let mut files: Vec<_> = fs::read_dir(DIR).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 100, "the corpus is there");
    let (mut random, mut good) = (Rng(0x9e37_79b9_7f4a_7c15), 0);
    for file in files {
        let entry = fs::read(&file).unwrap();
        good += usize::from(check(&entry));
        for _ in 0..ROUNDS {
            let mut bytes = entry.clone();
            mutate(&mut bytes, &mut random);
            check(&bytes);
        }
    }
    assert!(good >= Opcode::COUNT, "{good} entries parse");
}

#[test]
#[ignore = "writes the seeds of the corpus"]
fn write_seeds() {
    fs::create_dir_all(DIR).unwrap();
    let mut random = Rng(1);
    for &opcode in Opcode::ALL {
        for variant in 0..2 {
            let arg = std::array::from_fn(|_| random.next() as u8);
            let numbers: Vec<_> = (0..variant * 3).map(|_| (random.next(), random.next())).collect();
            let names = [b"name\0".to_vec(), b"new name\xff\0".to_vec()];
            let data = random.bytes(variant * 20);
            let material = ArbitraryInput::new(arg, names, b"user.some\0".to_vec(), data, &numbers);
            let mut builder = RequestBuilder::new(random.next(), random.next()).caller(1000, 1000, 77);
            if variant == 1 {
                let ext = ExtBuilder::default()
                    .security_contexts(&[(c"security.selinux", b"u:r:t:s0")])
                    .groups(&[100]);
                builder = builder.extensions(ext.as_bytes()).setxattr_ext(true);
            }
            let bytes = builder.build(&material.operation(opcode, variant == 1));
            fs::write(Path::new(DIR).join(format!("seed-{}-{variant}", opcode.name())), bytes).unwrap();
        }
    }
}
