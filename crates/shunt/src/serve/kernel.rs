//! The counters of the module shunt_fuse_ext.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use shunt_fuse::Opcode;

use crate::report::OpcodeCounts;

/// The debugfs file with the counters, by connection and opcode.
const COUNTERS_PATH: &str = "/sys/kernel/debug/shunt_fuse_ext";

/// The open file, for a sandboxed daemon that can no longer open it.
static COUNTERS_FILE: OnceLock<File> = OnceLock::new();

/// Opens the file, before this process is sandboxed.
pub(super) fn keep_open() {
    if let Ok(file) = File::open(COUNTERS_PATH) {
        let _ = COUNTERS_FILE.set(file);
    }
}

fn read(file: &File) -> io::Result<String> {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        match file.read_at(&mut part, text.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend(&part[..length]),
        }
    }
}

/// The counters of a connection by operation; `None` where the kernel does not show them.
pub(super) fn counts(connection: u32) -> Option<BTreeMap<String, OpcodeCounts>> {
    let text = COUNTERS_FILE.get().map_or_else(|| fs::read_to_string(COUNTERS_PATH), read);
    parse(&text.ok()?, connection)
}

/// Parses a line `connection N ...` followed by lines `op N answered N passed N refused N`, for each connection.
fn parse(text: &str, connection: u32) -> Option<BTreeMap<String, OpcodeCounts>> {
    let is_ours = |line: &str| {
        line.strip_prefix("connection ").and_then(|rest| rest.split(' ').next())
            == Some(&connection.to_string())
    };
    let lines = text.lines().skip_while(|line| !is_ours(line));
    let counts = lines.skip(1).take_while(|line| line.starts_with("op ")).filter_map(count).collect();
    text.lines().any(is_ours).then_some(counts)
}

fn count(line: &str) -> Option<(String, OpcodeCounts)> {
    let mut words = line.split(' ');
    let mut number =
        |name: &str| (words.next()? == name).then(|| words.next()?.parse::<u64>().ok()).flatten();
    let opcode = u32::try_from(number("op")?).ok()?;
    let (answered, passed, refused) = (number("answered")?, number("passed")?, number("refused")?);
    let name = Opcode::ALL.iter().find(|known| **known as u32 == opcode)?.name();
    Some((name.to_owned(), OpcodeCounts { answered, passed, refused }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_the_connection() {
        let text = "connection 4 program 1 nodes 0 lookups 0\nop 3 answered 9 passed 9 refused 0\n\
                    connection 45 program 1 nodes 2 lookups 5\nop 1 answered 7 passed 2 refused 1\n\
                    op 22 answered 1 passed 0 refused 0\nop 3000 answered 1 passed 0 refused 0\n\
                    connection 46 program 0 nodes 0 lookups 0\n";
        let counts = parse(text, 45).unwrap();
        assert_eq!(counts["lookup"], OpcodeCounts { answered: 7, passed: 2, refused: 1 });
        assert_eq!((counts["getxattr"].answered, counts.len()), (1, 2));
        assert_eq!(parse(text, 46).map(|counts| counts.len()), Some(0));
        assert_eq!(parse(text, 5), None);
        assert_eq!(parse("op one two", 5), None);
    }
}
