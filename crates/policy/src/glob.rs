//! Glob patterns for one path component: `*`, `?`, `[a-z]`, `[!0-9]`, and `\` to escape a character.

/// A compiled glob pattern for one path component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
    ignore_case: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A literal character.
    Just(u32),
    /// `?`
    One,
    /// `*`
    Any,
    /// `[...]`, or its complement.
    Set { ranges: Vec<(u32, u32)>, negated: bool },
}

/// Base for bytes that are not UTF-8: such a byte matches only itself, outside the range of characters.
const RAW_BYTE_BASE: u32 = 0x11_0000;

/// Decodes the first character; returns it with its length in bytes.
fn first(bytes: &[u8]) -> Option<(u32, usize)> {
    let lead = *bytes.first()?;
    let length = match lead {
        0..0x80 => return Some((lead.into(), 1)),
        0xc2..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0..0xf5 => 4,
        _ => return Some((RAW_BYTE_BASE + u32::from(lead), 1)),
    };
    let character = bytes.get(..length).and_then(|bytes| std::str::from_utf8(bytes).ok()?.chars().next());
    Some(character.map_or((RAW_BYTE_BASE + u32::from(lead), 1), |character| (character.into(), length)))
}

fn fold(character: u32) -> u32 {
    char::from_u32(character).map_or(character, |character| character.to_ascii_lowercase().into())
}

impl Glob {
    /// Parses a pattern; the error describes what is wrong with it.
    pub(crate) fn parse(text: &str, ignore_case: bool) -> Result<Self, String> {
        let mut tokens = Vec::new();
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            tokens.push(match character {
                '*' if tokens.last() == Some(&Token::Any) => {
                    return Err("`**` must be a whole path component; use one `*`".into());
                }
                '*' => Token::Any,
                '?' => Token::One,
                '[' => set(&mut rest)?,
                '\\' => Token::Just(rest.next().ok_or("the pattern ends with `\\`; write `\\\\` for the character itself")?.into()),
                '{' | '}' => {
                    return Err(
                        "a variable such as {uid} must be a whole path component; write `\\{` for the character itself"
                            .into(),
                    );
                }
                character => Token::Just(character.into()),
            });
        }
        if ignore_case {
            for token in &mut tokens {
                if let Token::Just(character) = token {
                    *character = fold(*character);
                }
            }
        }
        Ok(Self { tokens, ignore_case })
    }

    /// Returns the name, if the pattern matches exactly one.
    pub(crate) fn literal(&self) -> Option<String> {
        let just = |token: &Token| match token {
            Token::Just(character) => char::from_u32(*character),
            _ => None,
        };
        if self.ignore_case { None } else { self.tokens.iter().map(just).collect() }
    }

    /// Reports whether the pattern is `*`, which matches every name.
    pub(crate) fn matches_all(&self) -> bool {
        self.tokens == [Token::Any]
    }

    /// Matches a name, in time at most proportional to the product of both lengths.
    pub(crate) fn matches(&self, name: &[u8]) -> bool {
        let (mut token, mut at) = (0, 0);
        // Backtracking point: the position to continue from when the last `*` matches one more character.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let next = first(&name[at..]);
            match (self.tokens.get(token), next) {
                (None, None) => return true,
                (Some(Token::Any), _) => {
                    token += 1;
                    retry = Some((token, at));
                    continue;
                }
                (Some(expected), Some((character, length))) if self.takes(expected, character) => {
                    token += 1;
                    at += length;
                    continue;
                }
                _ => {}
            }
            let Some((after, from)) = retry else { return false };
            let Some((_, length)) = first(&name[from..]) else { return false };
            retry = Some((after, from + length));
            (token, at) = (after, from + length);
        }
    }

    fn takes(&self, token: &Token, character: u32) -> bool {
        let character = if self.ignore_case { fold(character) } else { character };
        match token {
            Token::Just(expected) => *expected == character,
            Token::One => true,
            Token::Any => false,
            Token::Set { ranges, negated } => {
                let upper = char::from_u32(character)
                    .map_or(character, |character| character.to_ascii_uppercase().into());
                let holds = |range: &(u32, u32)| (range.0..=range.1).contains(&character);
                let folded = |range: &(u32, u32)| self.ignore_case && (range.0..=range.1).contains(&upper);
                ranges.iter().any(|range| holds(range) || folded(range)) != *negated
            }
        }
    }
}

/// Parses a bracket expression; the opening bracket was consumed.
fn set(rest: &mut std::str::Chars<'_>) -> Result<Token, String> {
    const UNCLOSED_BRACKET: &str = "`[` without closing `]`; write `\\[` for the character itself";
    let mut ranges = Vec::new();
    let mut character = rest.next().ok_or(UNCLOSED_BRACKET)?;
    let negated = character == '!';
    if negated {
        character = rest.next().ok_or(UNCLOSED_BRACKET)?;
    }
    loop {
        let low = if character == '\\' { rest.next().ok_or(UNCLOSED_BRACKET)? } else { character };
        let mut next = rest.next().ok_or(UNCLOSED_BRACKET)?;
        let mut high = low;
        if next == '-' {
            high = rest.next().ok_or(UNCLOSED_BRACKET)?;
            if high == ']' {
                ranges.extend([(low.into(), low.into()), ('-'.into(), '-'.into())]);
                return Ok(Token::Set { ranges, negated });
            }
            if high < low {
                return Err(format!("the range `{low}-{high}` is empty; write the lower end first"));
            }
            next = rest.next().ok_or(UNCLOSED_BRACKET)?;
        }
        ranges.push((low.into(), high.into()));
        if next == ']' {
            return Ok(Token::Set { ranges, negated });
        }
        character = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        Glob::parse(pattern, false).unwrap().matches(name.as_bytes())
    }

    #[test]
    fn names_are_matched() {
        for (pattern, yes, no) in [
            ("a", "a", "b"),
            ("*", "anything", ""),
            ("*.jpg", "x.jpg", "x.jpeg"),
            ("a*b*c", "aXbYbc", "aXbY"),
            ("?", "ü", "ab"),
            ("[a-c]x", "bx", "dx"),
            ("[!a-c]x", "dx", "bx"),
            ("[x-]", "-", "y"),
            ("\\*", "*", "x"),
            ("", "", "x"),
        ] {
            assert!(matches(pattern, yes), "{pattern} {yes}");
            assert!(pattern == "*" || !matches(pattern, no), "{pattern} {no}");
        }
    }

    #[test]
    fn letters_may_be_ignored() {
        let glob = Glob::parse("*.JpG", true).unwrap();
        assert!(glob.matches(b"a.jpg") && glob.matches(b"a.JPG"));
        assert!(Glob::parse("[A-C]", true).unwrap().matches(b"b"));
        assert!(Glob::parse("[a-c]", true).unwrap().matches(b"B"));
        assert!(!Glob::parse("a", false).unwrap().matches(b"A"));
    }

    #[test]
    fn bytes_that_are_no_text_are_matched_by_wildcards_only() {
        assert!(Glob::parse("a?b", false).unwrap().matches(b"a\xffb"));
        assert!(!Glob::parse("aÿb", false).unwrap().matches(b"a\xffb"));
    }

    #[test]
    fn invalid_patterns_are_reported() {
        for wrong in ["[a", "[", "a\\", "[b-a]", "**", "a{uid}", "[!", "[a-"] {
            assert!(Glob::parse(wrong, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let glob = Glob::parse(&"*a".repeat(100), false).unwrap();
        assert!(!glob.matches(&[b'a'; 99]));
        assert!(!glob.matches(&[b'b'; 255]));
    }
}
