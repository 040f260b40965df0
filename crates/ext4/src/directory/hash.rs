//! Hashes of directory entry names, the keys of the directory index.

/// Hash algorithm of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Legacy,
    HalfMd4,
    Tea,
    #[cfg(test)]
    FirstByte,
}

/// Returns the next words of a name as hash input: big-endian, padded with the number of remaining bytes.
fn words<const N: usize>(bytes: &[u8], unsigned: bool) -> [u32; N] {
    let length = bytes.len() as u32;
    let half = length | length << 8;
    let pad = half | half << 16;
    let mut words = [pad; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = bytes.iter().fold(pad, |word, &byte| (word << 8).wrapping_add(widen(byte, unsigned)));
    }
    words
}

/// Extends a byte to 32 bits. Architectures differ in the sign of `char`; the superblock records the one in use.
fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { byte.into() } else { i32::from(byte as i8) as u32 }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut previous, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
    for &byte in name {
        let mut hash = before.wrapping_add(previous ^ widen(byte, unsigned).wrapping_mul(7_152_373));
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        (before, previous) = (previous, hash);
    }
    previous << 1
}

/// MD4 with three rounds of eight steps.
fn half_md4(state: &mut [u32; 4], input: [u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(u32, [usize; 8], [u32; 4]); 3] = [
        (0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let mixes: [Mix; 3] =
        [|x, y, z| z ^ (x & (y ^ z)), |x, y, z| (x & y).wrapping_add((x ^ y) & z), |x, y, z| x ^ y ^ z];
    let [mut a, mut b, mut c, mut d] = *state;
    for ((constant, order, shifts), mix) in ROUNDS.into_iter().zip(mixes) {
        for (step, word) in order.into_iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[word]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

/// The Tiny Encryption Algorithm with sixteen rounds.
fn tea(state: &mut [u32; 4], key: [u32; 4]) {
    let [mut left, mut right, ..] = *state;
    let mut sum = 0_u32;
    let mix = |value: u32, sum: u32, first: u32, second: u32| {
        (value << 4).wrapping_add(first) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(second)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        left = left.wrapping_add(mix(right, sum, key[0], key[1]));
        right = right.wrapping_add(mix(left, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(left);
    state[1] = state[1].wrapping_add(right);
}

/// Returns the hash of a name. The lowest bit, a flag in the index, is clear.
pub(crate) fn hash(algorithm: Algorithm, unsigned: bool, seed: [u32; 4], name: &[u8]) -> u32 {
    hashes(algorithm, unsigned, seed, name)[0]
}

/// Returns the hash of a name and a secondary hash, which indexes do not store.
pub(super) fn hashes(algorithm: Algorithm, unsigned: bool, seed: [u32; 4], name: &[u8]) -> [u32; 2] {
    let mut state = match seed {
        [0, 0, 0, 0] => [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476],
        seed => seed,
    };
    let (hash, second) = match algorithm {
        Algorithm::Legacy => (legacy(name, unsigned), 0),
        Algorithm::HalfMd4 => {
            let mut rest = name;
            while !rest.is_empty() {
                half_md4(&mut state, words::<8>(rest, unsigned));
                rest = rest.get(32..).unwrap_or_default();
            }
            (state[1], state[2])
        }
        Algorithm::Tea => {
            let mut rest = name;
            while !rest.is_empty() {
                tea(&mut state, words::<4>(rest, unsigned));
                rest = rest.get(16..).unwrap_or_default();
            }
            (state[0], state[1])
        }
        #[cfg(test)]
        Algorithm::FirstByte => (u32::from(name[0]) << 24, 0),
    };
    // The largest value is reserved for the end of a directory.
    let hash = if hash & !1 == 0xffff_fffe { 0xffff_fffc } else { hash & !1 };
    [hash, second]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the output of `debugfs -R "dx_hash -h ALGORITHM -s SEED NAME"`.
    #[test]
    fn hashes_of_debugfs() {
        let long: Vec<u8> = (0..80).map(|n| b'a' + n % 26).collect();
        for (algorithm, name, expected) in [
            (Algorithm::HalfMd4, &b"hello"[..], 0x1746_da32),
            (Algorithm::HalfMd4, &long, 0x8353_8f96),
            (Algorithm::Tea, b"hello", 0x6f5b_b1a8),
            (Algorithm::Tea, &long, 0xfef7_0790),
            (Algorithm::Legacy, b"hello", 0x3225_2546),
            (Algorithm::Legacy, &long, 0x873e_5c6c),
        ] {
            assert_eq!(hash(algorithm, false, [0; 4], name), expected, "{algorithm:?}");
        }
    }
}
