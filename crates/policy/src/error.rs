//! What is wrong with a policy.

use std::ops::Range;

/// What is wrong with a policy, and where: one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct PolicyError {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

impl PolicyError {
    pub(crate) fn at(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let (line, column) = position(text, span.start);
        // A line stays a line, whatever was quoted in it.
        let message = message.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { line, column, message }
    }
}

/// Line and column of a byte, counted from 1.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
