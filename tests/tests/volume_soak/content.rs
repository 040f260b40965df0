//! What files hold: each block says by which write it came, and of which file.

use shunt_tests::Rng;

pub const BLOCK: usize = 512;
/// The least that says whose it is.
const HEAD: usize = 32;

/// The length nearest to this one at which each block can say whose it is.
pub fn length(near: usize) -> usize {
    let head = if near > 0 && near.is_multiple_of(BLOCK) { 0 } else { HEAD };
    near.max(near / BLOCK * BLOCK + head)
}

/// All that a write puts into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Of the write: no other has it.
    pub token: u64,
    /// Of the file that was first made, kept by all later writes to it.
    pub line: u64,
    pub len: usize,
}

/// What a file was found to hold.
#[derive(Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    Whole(Content),
    /// Parts of these.
    Parts(Vec<Content>),
    /// At this place is what nobody wrote.
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

    pub fn bytes(&self) -> Vec<u8> {
        (0..self.len.div_ceil(BLOCK)).flat_map(|n| self.block(n)).collect()
    }

    /// What the block says that it is, if that is what it holds. The last one may have been cut.
    fn of(block: &[u8], n: usize) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(block.get(at * 8..at * 8 + 8)?.try_into().ok()?));
        let content = Self { token: word(0)?, line: word(1)?, len: usize::try_from(word(2)?).ok()? };
        let inside = word(3)? == n as u64 && content.len >= n * BLOCK + block.len();
        (inside && content.block(n).starts_with(block)).then_some(content)
    }
}

impl Held {
    pub fn of(bytes: &[u8]) -> Self {
        let mut parts: Vec<Content> = Vec::new();
        for (n, block) in bytes.chunks(BLOCK).enumerate() {
            match Content::of(block, n) {
                Some(content) if parts.contains(&content) => {}
                Some(content) => parts.push(content),
                None => return Self::Foreign(n * BLOCK),
            }
        }
        match parts[..] {
            [] => Self::Nothing,
            [content] if content.len == bytes.len() => Self::Whole(content),
            _ => Self::Parts(parts),
        }
    }

    /// All that is of it.
    pub fn contents(&self) -> &[Content] {
        match self {
            Self::Nothing | Self::Foreign(_) => &[],
            Self::Whole(content) => std::slice::from_ref(content),
            Self::Parts(parts) => parts,
        }
    }
}

#[test]
fn a_file_says_what_it_holds() {
    let content = Content { token: 7, line: 3, len: 2000 };
    let bytes = content.bytes();
    assert_eq!(Held::of(&bytes), Held::Whole(content));
    assert_eq!(Held::of(&bytes[..1100]), Held::Parts(vec![content]));
    assert_eq!(Held::of(&[]), Held::Nothing);
    let mut other = Content { token: 8, ..content }.bytes();
    other[..512].copy_from_slice(&bytes[..512]);
    assert!(matches!(Held::of(&other), Held::Parts(parts) if parts.len() == 2));
    other[700] ^= 1;
    assert_eq!(Held::of(&other), Held::Foreign(512));
}
