//! `--uid-map` and `--gid-map`.

use std::fmt;
use std::str::FromStr;

/// `FROM:TO[:COUNT]`: the ids FROM, FROM+1, ... of the source are shown as TO, TO+1, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRule {
    /// The first id in the source.
    pub from: u32,
    /// The first id that the mount shows.
    pub to: u32,
    /// How many.
    pub count: u32,
}

impl FromStr for IdRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut fields = text.split(':');
        let mut number = |what: &str| -> Result<Option<u32>, String> {
            let Some(field) = fields.next() else { return Ok(None) };
            field.parse().map(Some).map_err(|_| format!("`{field}` in `{text}` is not {what}"))
        };
        let from = number("an id")?;
        let to = number("an id")?;
        let count = number("a count")?.unwrap_or(1);
        let (Some(from), Some(to), None) = (from, to, fields.next()) else {
            return Err(format!("`{text}` is not FROM:TO or FROM:TO:COUNT"));
        };
        // 2^32-1 means "no id" to every system call.
        let fits = |first: u32| first.checked_add(count).is_some();
        if count == 0 || !fits(from) || !fits(to) {
            return Err(format!("`{text}` is empty or goes beyond the last id, 4294967294"));
        }
        Ok(IdRule { from, to, count })
    }
}

impl fmt::Display for IdRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.from, self.to, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_or_many() {
        assert_eq!("0:1000".parse(), Ok(IdRule { from: 0, to: 1000, count: 1 }));
        assert_eq!("100000:0:65536".parse(), Ok(IdRule { from: 100_000, to: 0, count: 65_536 }));
        assert_eq!("4294967294:0".parse::<IdRule>().unwrap().to_string(), "4294967294:0:1");
    }

    #[test]
    fn mistakes_are_named() {
        for (wrong, part) in [
            ("", "not an id"),
            ("5", "FROM:TO"),
            ("1:2:3:4", "FROM:TO"),
            ("a:1", "`a`"),
            ("1:-2", "`-2`"),
            ("1:2:0", "empty"),
            ("4294967295:0", "beyond"),
            ("1:4294967290:9", "beyond"),
            ("1:99999999999", "not an id"),
        ] {
            let message = wrong.parse::<IdRule>().unwrap_err();
            assert!(message.contains(part), "{wrong}: {message}");
        }
    }
}
