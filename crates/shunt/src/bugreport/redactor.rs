//! Replaces names in text. What is known to be harmless stays: words of the [`Vocabulary`], numbers, times, punctuation, and
//! standard directories. Everything else is replaced, so a name that no rule foresees does not pass.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::addresses;
use super::pseudonyms::Pseudonyms;
use super::vocabulary::Vocabulary;

/// Limit of a line, in characters; the rest is dropped.
const MAX_LINE_CHARS: usize = 2000;
/// Digits of a number that may stay: sizes and identifiers, but no telephone or account numbers.
const MAX_DIGITS: usize = 10;
/// Letters from which on a known name is replaced inside of words, too.
const MIN_INNER_LETTERS: usize = 4;

/// Directories whose names are the same everywhere.
const STANDARD_DIRS: &[&str] = &[
    "bin",
    "boot",
    "cache",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "local",
    "media",
    "mnt",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "share",
    "srv",
    "sys",
    "tmp",
    "usr",
    "var",
    "user",
    "fuse",
    "kernel",
    "module",
    "parameters",
    "self",
    "modprobe.d",
    "bdi",
    "class",
    "read_ahead_kb",
    "log",
    "enable_uring",
];

/// Fields of logs and JSON whose values are names.
pub const NAME_FIELDS: &[&str] = &[
    "path",
    "name",
    "file",
    "dir",
    "directory",
    "mountpoint",
    "source",
    "user",
    "node",
    "volume",
    "cache",
    "pinned",
    "grafts",
    "place",
    "target",
    "from",
    "to",
    "program",
    "exe",
    "peer",
    "address",
    "host",
    "config",
    "offline_miss_paths",
    "unmet_paths",
    "label",
    "uuid",
    "tag",
    "comm",
    "command",
    "key",
    "store",
    "bucket",
    "url",
    "entry",
    "parent",
];

/// Units after a number.
const UNITS: &[&str] = &[
    "ns", "us", "ms", "s", "m", "h", "d", "b", "kb", "mb", "gb", "kib", "mib", "gib", "tib", "k", "g", "t",
    "z",
];

/// Replaces names by pseudonyms.
#[derive(Debug)]
pub struct Redactor {
    vocabulary: Vocabulary,
    pseudonyms: Pseudonyms,
    /// Known names, the longest first.
    known: Vec<String>,
}

impl Redactor {
    pub fn new(vocabulary: Vocabulary) -> Self {
        Redactor { vocabulary, pseudonyms: Pseudonyms::default(), known: Vec::new() }
    }

    /// Adds names that must not stay, even where they are words of the vocabulary: users and hosts.
    pub fn know(&mut self, names: impl IntoIterator<Item = String>) {
        let mut all: BTreeSet<String> = self.known.drain(..).collect();
        all.extend(names.into_iter().filter(|name| name.chars().count() > 1));
        self.known = all.into_iter().collect();
        self.known.sort_by_key(|name| std::cmp::Reverse(name.len()));
    }

    /// Adds a path: it is replaced wherever it occurs, and so are its components, unless they are words of the vocabulary.
    pub fn know_path(&mut self, path: &str) {
        let parts: Vec<String> = path
            .split('/')
            .filter(|part| !STANDARD_DIRS.contains(part) && !self.is_harmless(part))
            .map(str::to_owned)
            .collect();
        self.know(parts);
    }

    /// Replaces a value that is a name as a whole: a path by components, everything else at once.
    pub fn name(&mut self, value: &str) -> String {
        match value.contains('/') {
            true => self.path(value),
            false if value.is_empty() || value.bytes().all(|b| b.is_ascii_digit()) && value.len() < 4 => {
                value.to_owned()
            }
            false => self.pseudonyms.of(value),
        }
    }

    /// Replaces the components of a path or URL.
    fn path(&mut self, path: &str) -> String {
        let is_device = ["/dev/", "/proc/", "/sys/"].iter().any(|start| path.starts_with(start));
        let mut out = Vec::new();
        for part in path.split('/') {
            let keep = part.is_empty()
                || STANDARD_DIRS.contains(&part)
                || part.bytes().all(|b| b.is_ascii_digit()) && part.len() < 4
                || is_device && self.is_harmless(part);
            out.push(if keep { part.to_owned() } else { self.pseudonyms.of(part) });
        }
        out.join("/")
    }

    /// Replaces the names in a text of several lines.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::new();
        for line in text.lines() {
            let line: String = without_escapes(line).chars().take(MAX_LINE_CHARS).collect();
            out.push_str(&self.line(&line));
            out.push('\n');
        }
        out
    }

    /// Replaces the names in one line.
    pub fn line(&mut self, line: &str) -> String {
        let line = self.without_known(line);
        let mut out = String::new();
        let mut rest = line.as_str();
        while let Some((before, content, after)) = quoted(rest) {
            out.push_str(&self.fields(before));
            let quote = rest[before.len()..].chars().next().unwrap_or('"');
            let content = if self.is_harmless(content) { content.to_owned() } else { self.name(content) };
            out.extend([quote.to_string(), content, quote.to_string()]);
            rest = after;
        }
        out.push_str(&self.fields(rest));
        out
    }

    /// Replaces the values of fields that hold names, up to the next field or the end; then all other words.
    fn fields(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, value, after)) = name_field(rest) {
            out.push_str(&self.words(before));
            out.push_str(&self.name(value));
            rest = after;
        }
        out.push_str(&self.words(rest));
        out
    }

    fn words(&mut self, text: &str) -> String {
        let mut out = String::new();
        for piece in text.split_inclusive(char::is_whitespace) {
            let word = piece.trim_end_matches(char::is_whitespace);
            out.push_str(&self.word(word));
            out.push_str(&piece[word.len()..]);
        }
        out
    }

    /// A text without white space.
    fn word(&mut self, word: &str) -> String {
        let core = word.trim_matches(|c: char| c.is_ascii_punctuation() && !"/_".contains(c));
        let at = word.find(core).filter(|_| !core.is_empty());
        let Some(at) = at else { return word.to_owned() };
        let (before, after) = (&word[..at], &word[at + core.len()..]);
        let address = core.parse::<IpAddr>().ok().or_else(|| core.parse::<SocketAddr>().ok().map(|a| a.ip()));
        let new = match address {
            Some(address) if !address.is_loopback() && !address.is_unspecified() => self.pseudonyms.of(core),
            Some(_) => core.to_owned(),
            None if self.is_harmless(core) => core.to_owned(),
            None if core.contains('/') && !core.contains('=') => self.path(core),
            None => match core.split_once('=') {
                Some((key, value)) if self.is_harmless(key) => format!("{key}={}", self.word(value)),
                _ => self.pseudonyms.of(core),
            },
        };
        [before, new.as_str(), after].concat()
    }

    /// Reports whether a text consists of numbers and words of the vocabulary, and contains no address and no absolute path.
    pub fn is_harmless(&self, text: &str) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
        !text.starts_with('/')
            && !addresses::contain(text)
            && text
                .split(|c| !is_part(c))
                .all(|part| part.is_empty() || is_number(part) || self.vocabulary.has(part))
    }

    fn without_known(&mut self, line: &str) -> String {
        let mut line = line.to_owned();
        for name in std::mem::take(&mut self.known) {
            if line.contains(&name) {
                let pseudonym = self.pseudonyms.of(&name);
                line = replace_name(&line, &name, &pseudonym);
            }
            self.known.push(name);
        }
        line
    }
}

/// Replaces a name: a short one only where it is a word by itself.
fn replace_name(line: &str, name: &str, new: &str) -> String {
    if name.chars().count() >= MIN_INNER_LETTERS {
        return line.replace(name, new);
    }
    let inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let mut out = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let alone = !inside(before.chars().next_back()) && !inside(after.chars().next());
        out.extend([before, if alone { new } else { name }]);
        rest = after;
    }
    out + rest
}

/// Reports whether a word is a number, with a unit, or a part of a time.
fn is_number(word: &str) -> bool {
    let digits =
        |text: &str| !text.is_empty() && text.len() <= MAX_DIGITS && text.bytes().all(|b| b.is_ascii_digit());
    let unit = |(number, unit): (&str, &str)| digits(number) && UNITS.contains(&&*unit.to_ascii_lowercase());
    digits(word)
        || word
            .strip_prefix("0x")
            .is_some_and(|hex| hex.len() <= 16 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
        || word
            .split_once('T')
            .is_some_and(|(day, hour)| day.len() == 2 && hour.len() == 2 && digits(day) && digits(hour))
        || word.find(|c: char| !c.is_ascii_digit()).is_some_and(|at| unit(word.split_at(at)))
}

/// The first text in quotation marks: what is before it, the text, and what follows.
fn quoted(line: &str) -> Option<(&str, &str, &str)> {
    let at = line.find(['"', '`'])?;
    let quote = line[at..].chars().next()?;
    let content = &line[at + 1..];
    let mut escaped = false;
    let end = content.char_indices().find(|(_, c)| {
        let is_end = *c == quote && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    let (content, after) = match end {
        Some((end, _)) => (&content[..end], &content[end + 1..]),
        None => (content, ""),
    };
    Some((&line[..at], content, after))
}

/// The first field `key=value` that holds a name: what is before the value, the value, and what follows.
fn name_field(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find('=').map(|at| from + at) {
        let key =
            text[..at].rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
        from = at + 1;
        if NAME_FIELDS.contains(&key) {
            let value = &text[from..];
            let end = next_field(value).unwrap_or(value.len());
            let value = value[..end].trim_end();
            if !value.is_empty() {
                return Some((&text[..from], value, &text[from + value.len()..]));
            }
        }
    }
    None
}

/// The position of the next ` key=`.
fn next_field(text: &str) -> Option<usize> {
    let equals = text.match_indices('=');
    equals
        .filter_map(|(at, _)| {
            let key = text[..at].rfind(' ')?;
            let name = &text[key + 1..at];
            (!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then_some(key)
        })
        .next()
}

/// The text without the control sequences of a terminal.
fn without_escapes(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => {
                chars.by_ref().skip_while(|c| *c == '[').find(char::is_ascii_alphabetic);
            }
            c if c.is_control() && c != '\t' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor() -> Redactor {
        Redactor::new(Vocabulary::of(
            "cannot open the file operation lookup failed plan read write WARN shunt_mirror mode",
        ))
    }

    #[test]
    fn words_of_the_program_stay_and_others_go() {
        let mut redactor = redactor();
        let line = "2026-11-28T15:08:51.123456Z  WARN shunt_mirror: cannot open the file in 12.5 ms (0x1f): mode=644";
        assert_eq!(redactor.line(line), line);
        assert_eq!(redactor.line("cannot open acme, the zorro"), "cannot open name-1, the name-2");
        assert_eq!(redactor.line("the Zorro acme"), "the name-3 name-1");
    }

    #[test]
    fn names_with_spaces_and_marks_are_replaced_whole() {
        let mut redactor = redactor();
        assert_eq!(
            redactor.line(r#"cannot open "the acme \"plan\" file": failed"#),
            "cannot open \"name-1\": failed"
        );
        assert_eq!(redactor.line("lookup name=the plan of acme mode=644"), "lookup name=name-2 mode=644");
        assert_eq!(redactor.line("open \"unfinished acme"), "open \"name-3\"");
        assert_eq!(redactor.line("open /mnt/acme/the.txt: failed"), "open /mnt/name-4/name-5: failed");
        assert_eq!(redactor.text("open fußball \u{1b}[1mb"), "open name-6 name-7\n");
    }

    #[test]
    fn addresses_numbers_and_keys_go() {
        let mut redactor = redactor();
        for secret in [
            "192.168.7.9",
            "192.168.7.9:443",
            "fe80::1",
            "[2001:db8::77]:443",
            "http://192.168.7.9/",
            "192.168.7.0/24",
            "bob@acme.org",
            "4111111111111111",
            "AKIA0AZ9",
            "1a2b3c4d5e6f",
        ] {
            let line = redactor.line(&format!("open ({secret}), failed"));
            assert!(!line.contains(secret) && line.starts_with("open ("), "{line}");
            assert!(!line.contains("192.") && !line.contains("2001:"), "{line}");
        }
        assert_eq!(redactor.line("127.0.0.1:80"), "127.0.0.1:80");
        let url = redactor.line("s3://bucket-9x/prefix?k=v");
        assert!(!url.contains("bucket") && !url.contains("prefix"), "{url}");
    }

    #[test]
    fn known_names_go_even_if_they_are_words() {
        let mut redactor = redactor();
        redactor.know(["plan".to_owned(), "eve".to_owned()]);
        redactor.know_path("/srv/acme/the file");
        assert_eq!(redactor.line("the plan failed, eve: open"), "the name-1 failed, name-2: open");
        assert!(!redactor.line("xacmex").contains("acme"));
    }

    #[test]
    fn nothing_panics() {
        let mut redactor = redactor();
        for line in [
            "",
            "=",
            "\"",
            "``",
            "\u{1b}",
            "\u{1b}[",
            "name=",
            "ä=\"ö`ü",
            "/",
            "//",
            "a=b=c",
            "'",
            "\\\"",
            " \u{a0} ",
        ] {
            redactor.text(line);
        }
    }
}
