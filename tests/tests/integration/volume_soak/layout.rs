//! Where in a file is what: how parts of several writes make one version of it.

use std::ops::Range;

use crate::volume_soak::content::{BLOCK, Content};

/// Which write each block of a file is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    len: usize,
    /// By token: so many blocks of one, then so many of another.
    runs: Vec<(u64, usize)>,
}

impl Layout {
    pub fn new(len: usize, tokens: impl IntoIterator<Item = u64>) -> Self {
        let mut runs: Vec<(u64, usize)> = Vec::new();
        for token in tokens {
            match runs.last_mut() {
                Some((last, count)) if *last == token => *count += 1,
                _ => runs.push((token, 1)),
            }
        }
        Self { len, runs }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    fn tokens(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|(token, count)| std::iter::repeat_n(*token, *count))
    }

    /// Once blocks of that are in it, and it is as long as that says.
    pub fn with(&self, content: &Content, blocks: Range<usize>) -> Self {
        let (before, after) = (self.tokens().take(blocks.start), self.tokens().skip(blocks.end));
        let all = before.chain(blocks.map(|_| content.token)).chain(after);
        Self::new(content.len, all.take(content.blocks()))
    }

    /// Once it ends there, in front of its end.
    pub fn cut(&self, len: usize) -> Self {
        Self::new(len, self.tokens().take(len.div_ceil(BLOCK)))
    }

    /// The write that came last.
    pub fn newest(&self) -> Option<u64> {
        self.runs.iter().map(|run| run.0).max()
    }
}
