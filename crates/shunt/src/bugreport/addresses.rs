//! Finds addresses inside of words, as in `tcp:192.0.2.1:443` and `[2001:db8::1]:443`. Their parts are numbers, and would stay.

use std::net::IpAddr;

/// Limit of a run of address characters; a longer one counts as an address.
const MAX_RUN_BYTES: usize = 64;
/// Groups of a hardware address.
const HARDWARE_GROUPS: usize = 6;

/// Reports whether a text contains an IP address that is not of this machine alone, or a hardware address.
pub fn contain(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':' || c == '.';
    text.split(|c| !is_part(c)).any(in_run)
}

fn in_run(run: &str) -> bool {
    let count = |wanted: u8| run.bytes().filter(|byte| *byte == wanted).count();
    if count(b'.') < 3 && count(b':') < 2 {
        return false;
    }
    if run.len() > MAX_RUN_BYTES {
        return true;
    }
    let is_separator = |byte: u8| byte == b':' || byte == b'.';
    let bytes = run.as_bytes();
    // The positions at which an address may begin or end: next to separators. An address may begin and end with `::`.
    let edges: Vec<usize> = (0..=run.len())
        .filter(|at| *at == 0 || *at == run.len() || is_separator(bytes[*at]) || is_separator(bytes[*at - 1]))
        .collect();
    edges.iter().any(|start| edges.iter().any(|end| start < end && is_address(&run[*start..*end])))
}

fn is_address(text: &str) -> bool {
    match text.parse::<IpAddr>() {
        Ok(address) => {
            !address.is_loopback() && !address.is_unspecified() && text.bytes().any(|b| b.is_ascii_digit())
        }
        Err(_) => {
            let is_group = |group: &str| group.len() == 2 && group.bytes().all(|b| b.is_ascii_hexdigit());
            text.split(':').count() == HARDWARE_GROUPS && text.split(':').all(is_group)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_words() {
        for text in [
            "192.0.2.1",
            "tcp:192.0.2.1:443",
            "http://192.0.2.1/",
            "192.0.2.0/24",
            "192.0.2.1-192.0.2.9",
            "[2001:db8::77]:4433",
            "2001:470:1:2::5/64",
            "fe80::1%2",
            "02:00:00:12:34:56",
            &"1.".repeat(50),
        ] {
            assert!(contain(text), "{text}");
        }
    }

    #[test]
    fn versions_times_and_modules_are_no_addresses() {
        for text in [
            "15:08:51",
            "2026-11-28T15:08:51.123456Z",
            "6.18.44",
            "shunt_fuse::session",
            "fe::ed",
            "127.0.0.1:80",
            "::1",
            "[::]:9",
            "0.0.0.0",
        ] {
            assert!(!contain(text), "{text}");
        }
    }
}
