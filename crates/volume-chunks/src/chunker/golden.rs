//! A golden file of chunk boundaries and chunk names. A chunker that cuts elsewhere, or a hash that names chunks otherwise, would
//! upload every file again that a volume already has.
//!
//! `golden.txt` has a line per chunk: name of the input, offset, length, and name of the chunk in an open volume whose key for
//! names is [`NAMES`]. It is never rewritten: volumes in use have chunks of these boundaries.

use std::fmt::Write as _;

use super::*;
use crate::ChunkKeys;

const GOLDEN: &str = include_str!("golden.txt");
/// Key of the chunk names.
const NAMES: [u8; 32] = *b"golden file of chunk boundaries\0";
const KIB: usize = 1 << 10;

/// Deterministic pseudo-random bytes: the extended output of BLAKE3 for a seed.
fn noise(seed: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Bytes of few values, in which the rolling hash repeats more often than in noise.
fn letters(seed: &str, length: usize) -> Vec<u8> {
    noise(seed, length).into_iter().map(|byte| b"etaoin s"[usize::from(byte & 7)]).collect()
}

/// A period of `length` bytes, repeated: boundaries are at the maximum length, or recur.
fn periodic(seed: &str, period: usize, length: usize) -> Vec<u8> {
    let mut bytes = noise(seed, period).repeat(length.div_ceil(period));
    bytes.truncate(length);
    bytes
}

fn inputs() -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = [
        1,
        4 * KIB,
        256 * KIB - 1,
        256 * KIB,
        256 * KIB + 1,
        MIB,
        MIB + 1,
        4 * MIB - 1,
        4 * MIB,
        4 * MIB + 1,
        8 * MIB + 3,
        16 * MIB + 12345,
    ]
    .iter()
    .map(|&length| (format!("noise-{length}"), noise(&format!("noise {length}"), length)))
    .collect();
    all.push(("letters".into(), letters("letters", 9 * MIB + 1)));
    all.push(("zeros".into(), vec![0; 9 * MIB + 5]));
    all.push(("period-61".into(), periodic("period 61", 61, 9 * MIB)));
    all.push(("period-1000003".into(), periodic("period 1000003", 1_000_003, 6 * MIB)));
    let mut sparse = noise("sparse", 12 * MIB);
    sparse[2 * MIB..7 * MIB].fill(0);
    all.push(("sparse".into(), sparse));
    all
}

/// Reads in lengths that change, as pipes and networks do.
struct ShortReads<'a>(&'a [u8], usize);

impl Read for ShortReads<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 * 7 % 65_521 + 1;
        let length = self.1.min(buffer.len());
        self.0.read(&mut buffer[..length])
    }
}

fn chunks(source: impl Read, size: usize) -> Vec<Vec<u8>> {
    let mut chunker = Chunker::new(source, size as u64, Chunking::ContentDefined);
    std::iter::from_fn(|| chunker.next().unwrap().map(<[u8]>::to_vec)).collect()
}

/// The lines of the golden file, as this version computes them.
fn computed() -> String {
    let keys = ChunkKeys::open(NAMES);
    let mut lines = String::new();
    for (name, bytes) in inputs() {
        let found = chunks(&bytes[..], bytes.len());
        assert!(
            found == chunks(ShortReads(&bytes, 1), bytes.len()),
            "{name}: depends on the lengths of reads"
        );
        assert!(found.concat() == bytes, "{name}");
        let mut offset = 0;
        for chunk in found {
            let id: String = keys.name(&chunk).0.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(lines, "{name} {offset} {} {id}", chunk.len()).unwrap();
            offset += chunk.len();
        }
    }
    lines
}

#[test]
fn boundaries_and_names_of_chunks_never_change() {
    let computed = computed();
    for (n, (now, before)) in computed.lines().zip(GOLDEN.lines()).enumerate() {
        assert_eq!(now, before, "line {} of golden.txt", n + 1);
    }
    assert_eq!(computed.lines().count(), GOLDEN.lines().count());
}
