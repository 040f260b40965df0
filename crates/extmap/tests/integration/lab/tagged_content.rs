//! Content of a racing file: words that encode their file, offset and writer.

/// Bytes of a word. All writes and sizes are multiples of it, so that words are never split.
pub const WORD: u64 = 8;

/// Offset of an appended word, which its writer does not know.
const ANYWHERE: u8 = 0xff;

const MAGIC: u8 = 0xc5;

/// Returns words of file `file` for `length` bytes at `offset` (or appended), by a writer in one of its turns.
pub fn words(file: u8, offset: Option<u64>, length: usize, writer: u8, turn: u64) -> Vec<u8> {
    let word = |n: u64| {
        let place = offset.map_or([ANYWHERE; 4], |offset| ((offset / WORD + n) as u32).to_le_bytes());
        let [a, b, c, d] = place;
        [MAGIC, file, a, b, c, d, writer, turn as u8]
    };
    (0..length as u64 / WORD).flat_map(word).collect()
}

/// Checks whether these bytes are possible. A concurrent reader may see partial words, so each byte is checked alone: zero, or
/// a byte of one of the writers.
pub fn check(file: u8, offset: u64, bytes: &[u8]) -> Result<(), String> {
    for (n, word) in bytes.chunks_exact(WORD as usize).enumerate() {
        if word == [0; WORD as usize] {
            continue;
        }
        let at = offset + n as u64 * WORD;
        let [a, b, c, d] = ((at / WORD) as u32).to_le_bytes();
        let wanted = [MAGIC, file, a, b, c, d];
        let one_of = |(n, byte): (usize, &u8)| *byte == 0 || *byte == wanted[n] || n > 1 && *byte == ANYWHERE;
        if !word[..6].iter().enumerate().all(one_of) {
            return Err(format!(
                "file {file} contains {word:02x?} at {at}, which belongs to another offset or another file"
            ));
        }
    }
    Ok(())
}

#[test]
fn foreign_content_is_detected() {
    let own = words(7, Some(4096), 64, 1, 2);
    assert_eq!(check(7, 4096, &own), Ok(()));
    assert_eq!(check(7, 123 * 8, &words(7, None, 64, 1, 2)), Ok(()));
    assert!(check(8, 4096, &own).is_err());
    assert!(check(7, 4104, &own).is_err());
    assert!(check(7, 4096, &[0xdb; 64]).is_err());
    assert_eq!(check(7, 0, &[0; 64]), Ok(()));
}
