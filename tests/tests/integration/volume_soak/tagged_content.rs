//! File contents that identify themselves: each block names its write and its file.

use std::ops::Range;

use shunt_tests::Rng;

use crate::volume_soak::block_layout::Layout;

pub const BLOCK: usize = 512;
/// Minimum length of a block that identifies itself.
const HEAD: usize = 32;

/// Returns the nearest length at which each block can identify itself.
pub fn length(near: usize) -> usize {
    let head = if near > 0 && near.is_multiple_of(BLOCK) { 0 } else { HEAD };
    near.max(near / BLOCK * BLOCK + head)
}

/// Content that a write puts into a file, as a whole or in some blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Unique number of the write.
    pub token: u64,
    /// Number of the file when it was created, kept by all later writes to it.
    pub line: u64,
    /// Length of the file after the write.
    pub len: usize,
}

/// Content found in a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FoundContent {
    Nothing,
    /// Blocks of these writes.
    Blocks(Vec<Content>, Layout),
    /// Bytes at this offset that no user wrote.
    Foreign(usize),
}

impl Content {
    fn block(&self, n: usize) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK);
        for word in [self.token, self.line, self.len as u64, n as u64] {
            block.extend(word.to_le_bytes());
        }
        let mut rng = Rng::new(self.token ^ (n as u64) << 40);
        while block.len() < BLOCK {
            block.extend((rng.below(1 << 48) as u64).to_le_bytes());
        }
        block.truncate(self.len.saturating_sub(n * BLOCK).min(BLOCK));
        block
    }

    pub fn blocks(&self) -> usize {
        self.len.div_ceil(BLOCK)
    }

    pub fn piece(&self, blocks: Range<usize>) -> Vec<u8> {
        blocks.flat_map(|n| self.block(n)).collect()
    }

    /// Parses a block, and verifies its content. The last block may have been truncated.
    fn of(block: &[u8], n: usize) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(block.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let content = Self { token: word(0)?, line: word(1)?, len: usize::try_from(word(2)?).ok()? };
        let inside = word(3)? == n as u64 && content.len >= n * BLOCK + block.len();
        (inside && content.block(n).starts_with(block)).then_some(content)
    }
}

impl FoundContent {
    pub fn of(bytes: &[u8]) -> Self {
        let mut contents: Vec<Content> = Vec::new();
        let mut tokens = Vec::new();
        for (n, block) in bytes.chunks(BLOCK).enumerate() {
            let Some(content) = Content::of(block, n) else { return Self::Foreign(n * BLOCK) };
            tokens.push(content.token);
            if !contents.contains(&content) {
                contents.push(content);
            }
        }
        if contents.is_empty() {
            return Self::Nothing;
        }
        Self::Blocks(contents, Layout::new(bytes.len(), tokens))
    }

    /// Returns all contents with blocks in the file.
    pub fn contents(&self) -> &[Content] {
        match self {
            Self::Nothing | Self::Foreign(_) => &[],
            Self::Blocks(contents, _) => contents,
        }
    }

    pub fn layout(&self) -> Option<&Layout> {
        match self {
            Self::Nothing | Self::Foreign(_) => None,
            Self::Blocks(_, layout) => Some(layout),
        }
    }

    /// Returns the latest content.
    pub fn newest(&self) -> Option<Content> {
        self.contents().iter().max_by_key(|content| content.token).copied()
    }
}

#[test]
fn a_file_says_what_it_holds() {
    let content = Content { token: 7, line: 3, len: 2000 };
    let bytes = content.piece(0..4);
    let whole = Layout::default().with(&content, 0..4);
    assert_eq!(FoundContent::of(&bytes), FoundContent::Blocks(vec![content], whole.clone()));
    assert_eq!(FoundContent::of(&bytes[..1100]), FoundContent::Blocks(vec![content], whole.cut(1100)));
    assert_eq!(FoundContent::of(&[]), FoundContent::Nothing);
    let edit = Content { token: 8, ..content };
    let mut edited = bytes;
    edited[512..1536].copy_from_slice(&edit.piece(1..3));
    let held = FoundContent::of(&edited);
    assert_eq!(held, FoundContent::Blocks(vec![content, edit], whole.with(&edit, 1..3)));
    assert_eq!(held.newest(), Some(edit));
    edited[700] ^= 1;
    assert_eq!(FoundContent::of(&edited), FoundContent::Foreign(512));
}
