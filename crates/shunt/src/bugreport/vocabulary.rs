//! The words that a report may contain: those of this program's own constants, which nobody's names are part of. They are read from
//! the read-only data of the executable, so they need no maintenance.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Limit of the data that is searched.
const MAX_DATA_BYTES: usize = 64 << 20;
/// Lengths of a word. A shorter one may be part of a table of bytes, a longer one is several texts without a space between.
const WORD_BYTES: std::ops::RangeInclusive<usize> = 3..=24;

/// Words that the program does not contain by themselves: short ones, and those of the kernel's messages.
const FURTHER: &[&str] = &[
    "a",
    "an",
    "name",
    "y",
    "n",
    "nr",
    "bpf",
    "as",
    "at",
    "be",
    "by",
    "do",
    "fd",
    "fs",
    "go",
    "id",
    "if",
    "in",
    "io",
    "is",
    "it",
    "kb",
    "ms",
    "no",
    "ns",
    "of",
    "on",
    "or",
    "ok",
    "pc",
    "so",
    "to",
    "up",
    "us",
    "vs",
    "we",
    "rw",
    "ro",
    "s",
    "b",
    "v",
    "c",
    "oops",
    "bug",
    "call",
    "trace",
    "tainted",
    "rip",
    "rsp",
    "blocked",
    "more",
    "than",
    "seconds",
    "task",
    "comm",
    "cpu",
    "pid",
    "modprobe",
    "module",
    "loop",
    "loaded",
    "unloaded",
    "jbd2",
    "orphan",
    "recovery",
    "complete",
    "quota",
    "mounted",
    "unmounting",
    "filesystem",
    "with",
    "ordered",
    "data",
    "mode",
    "warning",
    "error",
    "info",
    "debug",
    "trace",
    "warn",
    "init",
    "memory",
    "out",
    "killed",
    "process",
    "detected",
    "capacity",
    "change",
    "from",
    "mib",
    "kib",
    "gib",
    "tib",
    "ext4",
    "fuse",
    "shunt",
    "linux",
    "debian",
    "gnu",
];

/// A set of words in lower case.
#[derive(Debug, Default)]
pub struct Vocabulary(HashSet<String>);

impl Vocabulary {
    /// The words of this program.
    pub fn of_program() -> Self {
        let mut words = Vocabulary(FURTHER.iter().map(|word| (*word).to_owned()).collect());
        words.add(&constants());
        // The version of the kernel, which a reader needs.
        let release = rustix::system::uname().release().to_string_lossy().to_ascii_lowercase();
        words.0.extend(release.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_owned));
        words
    }

    fn add(&mut self, data: &[u8]) {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        for word in data.split(|byte| !is_word(byte)) {
            if WORD_BYTES.contains(&word.len()) && !word[0].is_ascii_digit() {
                self.0.insert(String::from_utf8_lossy(word).to_ascii_lowercase());
            }
        }
    }

    /// Reports whether a word is part of it, in upper or lower case.
    pub fn has(&self, word: &str) -> bool {
        self.0.contains(&word.to_ascii_lowercase())
    }

    /// A vocabulary of these words.
    #[cfg(test)]
    pub fn of(words: &str) -> Self {
        let mut vocabulary = Vocabulary::default();
        vocabulary.add(words.as_bytes());
        vocabulary.0.extend(["name", "a", "of", "in", "no", "ms"].map(str::to_owned));
        vocabulary
    }
}

/// The mapped parts of the executable that are only readable: its constants, not its code or symbols.
fn constants() -> Vec<u8> {
    let (Ok(program), Ok(path), Ok(maps)) = (
        File::open("/proc/self/exe"),
        fs::read_link("/proc/self/exe"),
        fs::read_to_string("/proc/self/maps"),
    ) else {
        return Vec::new();
    };
    let path = path.to_string_lossy();
    let mut data = Vec::new();
    for line in maps.lines().filter(|line| line.ends_with(&*path)) {
        let mut fields = line.split_whitespace();
        let (Some(range), Some("r--p"), Some(offset)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let ends = range.split_once('-').and_then(|(from, to)| Some((hex(from)?, hex(to)?)));
        let (Some((from, to)), Some(offset)) = (ends, hex(offset)) else { continue };
        let mut part = vec![0; (to.saturating_sub(from) as usize).min(MAX_DATA_BYTES - data.len())];
        let length = program.read_at(&mut part, offset).unwrap_or(0);
        data.extend_from_slice(&part[..length]);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_knows_its_own_messages() {
        let words = Vocabulary::of_program();
        for word in ["mountpoint", "passthrough", "Cannot", "coherent", "ext4"] {
            assert!(words.has(word), "{word}");
        }
        let secret: String = format!("{}{}", "kwx", "qzjv");
        assert!(!words.has(&secret) && !words.has(""));
    }
}
