//! Layout of a file: how blocks of several writes form one version.

use std::ops::Range;

use crate::volume_soak::tagged_content::{BLOCK, Content};

/// The write to which each block of a file belongs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    len: usize,
    /// Run lengths: token and number of blocks.
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

    /// Returns the layout after these blocks of a content were written and its length was set.
    pub fn with(&self, content: &Content, blocks: Range<usize>) -> Self {
        let (before, after) = (self.tokens().take(blocks.start), self.tokens().skip(blocks.end));
        let all = before.chain(blocks.map(|_| content.token)).chain(after);
        Self::new(content.len, all.take(content.blocks()))
    }

    /// Returns the layout after a truncation.
    pub fn cut(&self, len: usize) -> Self {
        Self::new(len, self.tokens().take(len.div_ceil(BLOCK)))
    }

    /// Returns the token of the latest write.
    pub fn newest(&self) -> Option<u64> {
        self.runs.iter().map(|run| run.0).max()
    }
}
