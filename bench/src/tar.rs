//! The part of the tar format that cutting and generating archives needs.

use std::io::{self, Read, Write};

const BLOCK: usize = 512;

/// Copies entries from `from` to `to` until `files` regular files and links are copied, then ends the archive. Returns how many
/// were copied.
///
/// # Errors
/// Errors of reading and writing, and a header that is not tar's.
pub fn cut(mut from: impl Read, mut to: impl Write, files: u64) -> io::Result<u64> {
    let mut header = [0; BLOCK];
    let mut copied = 0;
    while copied < files {
        from.read_exact(&mut header)?;
        if header == [0; BLOCK] {
            break;
        }
        to.write_all(&header)?;
        let padded = size(&header)?.next_multiple_of(BLOCK as u64);
        if io::copy(&mut (&mut from).take(padded), &mut to)? != padded {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A regular file, a hard link or a symbolic link. Headers of long names and attributes precede the entry that they belong
        // to.
        if matches!(header[156], b'0' | 0 | b'1' | b'2') {
            copied += 1;
        }
    }
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()?;
    Ok(copied)
}

/// Writes an archive of `files` files of `content`, a thousand per directory.
///
/// # Errors
/// Errors of writing.
pub fn generate(mut to: impl Write, files: u64, content: &[u8]) -> io::Result<()> {
    for at in 0..files {
        let directory = at / 1000;
        if at % 1000 == 0 {
            to.write_all(&header(&format!("d{directory}/"), b'5', 0o755, 0))?;
        }
        to.write_all(&header(&format!("d{directory}/f{at}"), b'0', 0o644, content.len()))?;
        to.write_all(content)?;
        to.write_all(&vec![0; content.len().next_multiple_of(BLOCK) - content.len()])?;
    }
    to.write_all(&[0; 2 * BLOCK])?;
    to.flush()
}

fn size(header: &[u8; BLOCK]) -> io::Result<u64> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "not a tar header");
    if &header[257..262] != b"ustar" {
        return Err(bad());
    }
    let text = std::str::from_utf8(&header[124..136]).map_err(|_| bad())?;
    u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).map_err(|_| bad())
}

fn header(name: &str, kind: u8, mode: u32, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}\0{:07o}\0{:07o}\0{size:011o}\0{:011o}\0", 0, 0, 1_700_000_000));
    put(148, "        ");
    put(257, "ustar\x0000");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_archive_can_be_cut() {
        let mut archive = Vec::new();
        generate(&mut archive, 10, b"hello").unwrap();
        let mut part = Vec::new();
        assert_eq!(cut(archive.as_slice(), &mut part, 4).unwrap(), 4);
        // One directory, four files of a header and a block each, the end.
        assert_eq!(part.len(), BLOCK + 4 * 2 * BLOCK + 2 * BLOCK);
        assert_eq!(cut(archive.as_slice(), io::sink(), 100).unwrap(), 10);
    }

    #[test]
    fn rubbish_is_an_error() {
        assert!(cut([7; 4096].as_slice(), io::sink(), 1).is_err());
        assert!(cut([7; 100].as_slice(), io::sink(), 1).is_err());
    }
}
