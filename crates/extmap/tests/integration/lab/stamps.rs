//! What a racing file consists of: words that say whose they are and where they belong.

/// Bytes of a word. All writes and sizes are multiples, so that a word is never cut.
pub const WORD: u64 = 8;

/// Where a word was appended its writer did not know its place.
const ANYWHERE: u8 = 0xff;

const MAGIC: u8 = 0xc5;

/// Words of file `file` for `length` bytes from `offset` on (or appended), of a writer in one of its turns.
pub fn words(file: u8, offset: Option<u64>, length: usize, writer: u8, turn: u64) -> Vec<u8> {
    let word = |n: u64| {
        let place = offset.map_or([ANYWHERE; 4], |offset| ((offset / WORD + n) as u32).to_le_bytes());
        let [a, b, c, d] = place;
        [MAGIC, file, a, b, c, d, writer, turn as u8]
    };
    (0..length as u64 / WORD).flat_map(word).collect()
}

/// Whether these bytes can be there. Who reads while somebody writes may see a word in part, so each byte is judged alone:
/// nothing (zero), or what one of the writers put there.
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
            return Err(format!("file {file} holds {word:02x?} at {at}: another place's or another file's"));
        }
    }
    Ok(())
}

#[test]
fn strangers_are_seen() {
    let own = words(7, Some(4096), 64, 1, 2);
    assert_eq!(check(7, 4096, &own), Ok(()));
    assert_eq!(check(7, 123 * 8, &words(7, None, 64, 1, 2)), Ok(()));
    assert!(check(8, 4096, &own).is_err());
    assert!(check(7, 4104, &own).is_err());
    assert!(check(7, 4096, &[0xdb; 64]).is_err());
    assert_eq!(check(7, 0, &[0; 64]), Ok(()));
}
