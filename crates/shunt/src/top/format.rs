//! Numbers in few characters, and texts that fit into a column.

use ratatui::text::Span;

use crate::text::printable;

/// A number that is not known.
pub const UNKNOWN: &str = "-";

/// Formats a rate in at most five characters: `0`, `0.4`, `950`, `12.3k`, `4.0M`.
pub fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 9.95 => format!("{value:.1}"),
        value if value < 9_999.5 => format!("{value:.0}"),
        value if value < 99_950.0 => format!("{:.1}k", value / 1e3),
        value if value < 999_500.0 => format!("{:.0}k", value / 1e3),
        value if value < 99_950_000.0 => format!("{:.1}M", value / 1e6),
        value => format!("{:.0}M", value / 1e6),
    }
}

/// Formats bytes in at most five characters: `0`, `512`, `4.0K`, `120M`, `1.5G`. Units are powers of 1024.
pub fn bytes(value: f64) -> String {
    // The sum of no numbers is -0.
    let mut value = value + 0.0;
    for unit in ["", "K", "M", "G"] {
        if value < 999.5 {
            let fraction = usize::from(!unit.is_empty() && value < 9.95);
            return format!("{value:.fraction$}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1}T")
}

/// Formats microseconds in at most six characters: `0.8us`, `850us`, `1.2ms`, `3.4s`.
pub fn micros(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 999.5 => (us, "us"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

/// Formats a share of 0 to 1 as percent.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Formats a value if it is known.
pub fn known<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), format)
}

/// Cuts the beginning of a path that is wider than a column: mount points differ at their ends.
pub fn path(path: &str, width: usize) -> String {
    let text = printable(path);
    if Span::raw(&*text).width() <= width {
        return text.into_owned();
    }
    let mut kept = 0;
    let mut used = 1;
    for c in text.chars().rev() {
        used += Span::raw(c.to_string()).width();
        if used > width {
            break;
        }
        kept += c.len_utf8();
    }
    format!("\u{2026}{}", &text[text.len() - kept..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.42, "0.4"),
            (9.96, "10"),
            (9_999.0, "9999"),
            (12_345.0, "12.3k"),
            (123_456.0, "123k"),
            (4e6, "4.0M"),
        ] {
            assert_eq!(rate(value), text);
        }
        for (value, text) in [
            (0.0, "0"),
            (512.0, "512"),
            (1000.0, "1.0K"),
            (4096.0, "4.0K"),
            (999.9 * 1024.0, "1.0M"),
            (123e6, "117M"),
            (5e12, "4.5T"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [(0.84, "0.8us"), (850.0, "850us"), (1234.0, "1.2ms"), (3_400_000.0, "3.4s")] {
            assert_eq!(micros(value), text);
        }
        assert_eq!((percent(1.0), known(None::<f64>, percent)), ("100%".into(), "-".into()));
    }

    #[test]
    fn long_paths_keep_their_end() {
        assert_eq!(path("/mnt/data", 9), "/mnt/data");
        assert_eq!(path("/mnt/photos", 7), "\u{2026}photos");
        // Wide characters take two columns.
        assert_eq!(path("/mnt/写真", 5), "\u{2026}写真");
        assert_eq!(path("/mnt/写真", 4), "\u{2026}真");
        assert_eq!(path("/a\x1b[1m", 20), "/a\\u{1b}[1m");
    }
}
