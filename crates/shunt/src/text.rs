//! Text for people: escapes control characters, aligns columns, and formats units.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with control characters escaped: a path or a peer must not steer a terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(misleads) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if misleads(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// Reports whether a terminal would not simply show a character: control characters, marks that change the direction of text,
/// separators of lines and paragraphs, and the byte order mark.
fn misleads(c: char) -> bool {
    let marks = ['\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{feff}'];
    c.is_control()
        || marks.contains(&c)
        || ('\u{202a}'..='\u{202e}').contains(&c)
        || ('\u{2066}'..='\u{2069}').contains(&c)
}

/// The text as one word of a shell command.
pub fn shell_quoted(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+=@%".contains(c);
    match !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        true => Cow::Borrowed(text),
        false => Cow::Owned(format!("'{}'", text.replace('\'', "'\\''"))),
    }
}

/// Removes the numbers that the standard library appends to messages of errors: ` (os error 2)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|b| b.is_ascii_digit()) => out.push_str(rest),
            _ => out.extend([" (os error ", part]),
        }
    }
    out
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// For words.
    Left,
    /// For numbers.
    Right,
}

/// Rows under a heading, in columns as wide as their widest cell.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Table {
            columns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell).into_owned()).collect());
    }

    /// The lines, each with its newline.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
            })
            .map(Option::unwrap_or_default)
            .collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, width), align) in row.iter().zip(&widths).zip(&self.columns) {
                let _ = match align {
                    Align::Left => write!(line, "{cell:<width$}  "),
                    Align::Right => write!(line, "{cell:>width$}  "),
                };
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// Formats bytes in the largest unit in which the number is at least one.
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats microseconds in a suitable unit.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.1} us"),
        us if us < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Formats seconds as `3d 04:05:06`.
pub fn uptime(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    if days > 0 { format!("{days}d {clock}") } else { clock }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("NAME", Align::Left), ("N", Align::Right)]);
        table.row(["a".into(), "100".into()]);
        table.row(["long\tname".into(), "7".into()]);
        assert_eq!(table.render(), "NAME          N\na           100\nlong\\tname    7\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("bill\u{202e}fdp.exe"), "bill\\u{202e}fdp.exe");
        assert_eq!(
            printable("a\u{2066}b\u{2028}c\u{feff}\x1b[1m"),
            "a\\u{2066}b\\u{2028}c\\u{feff}\\u{1b}[1m"
        );
        let plain = "Ünïcode \u{200d} שלום";
        assert!(matches!(printable(plain), Cow::Borrowed(same) if same == plain));
    }

    #[test]
    fn a_word_of_a_shell_is_one_word() {
        assert_eq!(shell_quoted("/mnt/a-b.c"), "/mnt/a-b.c");
        assert_eq!(shell_quoted("/mnt/a b"), "'/mnt/a b'");
        assert_eq!(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!((&*shell_quoted(""), &*shell_quoted("-f")), ("''", "'-f'"));
    }

    #[test]
    fn numbers_of_errors_go() {
        let text = "cannot open /a: Permission denied (os error 13); run as root (os error x)";
        assert_eq!(without_numbers(text), "cannot open /a: Permission denied; run as root (os error x)");
    }

    #[test]
    fn units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(micros(17.54), "17.5 us");
        assert_eq!(micros(2500.0), "2.5 ms");
        assert_eq!(uptime(3661.9), "01:01:01");
        assert_eq!(uptime(90_061.0), "1d 01:01:01");
    }
}
