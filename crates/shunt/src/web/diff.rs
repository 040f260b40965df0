//! Compares two states of a file, side by side.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::error::Result;
use super::files::{self, Content};
use super::query::Parameters;

/// Time for the exact comparison. Later the rest is compared roughly.
const EXACT_TIMEOUT: Duration = Duration::from_millis(500);

/// Limit of the lines of a text that is compared: each line of a result takes some hundred bytes of memory.
const MAX_LINES: usize = 50_000;

/// Compares the file `path`, `at` or `version`, with the file `other_path`, `other_at` or `other_version`.
pub fn compare(parameters: &Parameters) -> Result<Value> {
    let read =
        |parameters: &Parameters| files::open(parameters).and_then(|(mut file, _)| files::read(&mut file));
    let sides = (read(parameters)?, read(&parameters.other())?);
    let rows = match &sides {
        (Content::Text(left), Content::Text(right)) if is_comparable(left) && is_comparable(right) => {
            Some(rows(left, right))
        }
        _ => None,
    };
    Ok(json!({ "kinds": [kind(&sides.0), kind(&sides.1)], "rows": rows }))
}

fn is_comparable(text: &str) -> bool {
    text.lines().nth(MAX_LINES).is_none()
}

/// The name of the content; that of a large file for a text with too many lines.
fn kind(content: &Content) -> &'static str {
    match content {
        Content::Text(text) if !is_comparable(text) => Content::Large.name(),
        content => content.name(),
    }
}

/// Rows `[change, left number, left line, right number, right line]`; change is `=`, `-`, `+` or `~`.
fn rows(left: &str, right: &str) -> Vec<Value> {
    let (left, right): (Vec<&str>, Vec<&str>) = (left.lines().collect(), right.lines().collect());
    let deadline = Some(Instant::now() + EXACT_TIMEOUT);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &left, &right, deadline);
    let mut rows = Vec::new();
    for operation in operations {
        let change = match operation {
            DiffOp::Equal { .. } => "=",
            DiffOp::Delete { .. } => "-",
            DiffOp::Insert { .. } => "+",
            DiffOp::Replace { .. } => "~",
        };
        let (mut olds, mut news) = (operation.old_range(), operation.new_range());
        for _ in 0..olds.len().max(news.len()) {
            let (old, new) = (olds.next(), news.next());
            let line = |lines: &[&str], at: Option<usize>| {
                at.and_then(|at| lines.get(at).map(|line| (*line).to_owned()))
            };
            rows.push(json!([
                change,
                old.map(|at| at + 1),
                line(&left, old),
                new.map(|at| at + 1),
                line(&right, new)
            ]));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paired() {
        let expected = json!([
            ["=", 1, "a", 1, "a"],
            ["~", 2, "b", 2, "B"],
            ["=", 3, "c", 3, "c"],
            ["+", null, null, 4, "d"]
        ]);
        assert_eq!(Value::from(rows("a\nb\nc\n", "a\nB\nc\nd\n")), expected);
        assert_eq!(Value::from(rows("a\n", "")), json!([["-", 1, "a", null, null]]));
        assert!(rows("", "").is_empty());
    }

    #[test]
    fn the_number_of_lines_is_limited() {
        let content = |lines: usize| Content::Text("\n".repeat(lines));
        assert_eq!((kind(&content(MAX_LINES)), kind(&content(MAX_LINES + 1))), ("text", "large"));
    }

    #[test]
    fn large_texts_do_not_take_long() {
        let text = |seed: usize| (0..40_000).map(|at| format!("{}\n", at * seed % 7919)).collect::<String>();
        let begun = Instant::now();
        assert!(rows(&text(7), &text(13)).len() >= 40_000);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
