//! Errors of a policy file, with their position.

use std::ops::Range;

/// An error in a policy file and its position, formatted as one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct PolicyError {
    /// Line, counted from 1.
    pub line: usize,
    /// Column in characters, counted from 1.
    pub column: usize,
    /// Description of the error, with the remedy.
    pub message: String,
}

impl PolicyError {
    pub(crate) fn at(text: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let (line, column) = position(text, span.start);
        // The message stays on one line, even if it quotes several.
        let message = message.into().split_whitespace().collect::<Vec<_>>().join(" ");
        Self { line, column, message }
    }
}

/// Returns line and column of a byte offset, counted from 1.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
