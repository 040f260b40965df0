//! Sizes on the command line.

use std::str::FromStr;

/// A number of bytes: digits, optionally followed by `K`, `M`, `G` or `T` for powers of 1024, or equivalently `KiB` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a size such as 4096, 500M or 20G");
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let power = match unit.strip_suffix("iB").unwrap_or(unit) {
            "" if unit.is_empty() => 0,
            "K" | "k" => 1,
            "M" => 2,
            "G" => 3,
            "T" => 4,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        number.checked_mul(1 << (10 * power)).filter(|size| *size < 1 << 62).map(Size).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let read = |text: &str| text.parse::<Size>().ok().map(|size| size.0);
        assert_eq!(read("0"), Some(0));
        assert_eq!(read("4096"), Some(4096));
        assert_eq!(read("500M"), Some(500 << 20));
        assert_eq!(read("20GiB"), Some(20 << 30));
        for wrong in ["", "M", "-1", "1.5G", "1B", "1iB", "99999999T", "1 G", "1MM"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
