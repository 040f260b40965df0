//! What is done to files until the power is cut. The same from the same seed, in the lab where it is done and where it is
//! judged afterwards.

use super::dice::Dice;

/// The file system that it is done to is a file on the recorded disk.
pub const IMAGE: &str = "image";
/// Beside it, which step was begun last; 0 is none.
pub const MARK: &str = "mark";
/// Of the image, in bytes.
pub const SIZE: u64 = 64 << 20;

/// Files that are there at a time.
const FILES: u64 = 6;
const LARGEST: u64 = 1 << 20;
/// All places and lengths are multiples.
const WORD: u64 = super::stamps::WORD;
const PAGE: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Cached,
    Direct,
    Mapped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    Create,
    Write {
        offset: u64,
        length: u64,
        how: How,
    },
    Truncate {
        size: u64,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Sync,
    /// Everything; but stock FUSE tells no daemon of it, so that nothing lasts for it.
    SyncAll,
    Remove,
}

/// Each file has a number of its own, so that what was freed with another one is told from it.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub file: u8,
    pub op: Op,
}

pub fn name(file: u8) -> String {
    format!("f{file}")
}

/// As many steps as the numbers of files allow, at most `most`.
pub fn steps(seed: u64, most: usize) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut files = vec![None::<(u8, u64)>; FILES as usize];
    let (mut steps, mut last) = (Vec::new(), 0);
    while steps.len() < most && last < 250 {
        let slot = &mut files[dice.roll(FILES) as usize];
        let Some((file, size)) = slot else {
            last += 1;
            *slot = Some((last, 0));
            steps.push(Step { file: last, op: Op::Create });
            continue;
        };
        let (file, word) = (*file, dice.roll(LARGEST / WORD) * WORD);
        let op = match dice.roll(16) {
            0 => {
                *slot = None;
                Op::Remove
            }
            1 => Op::SyncAll,
            2..=4 => Op::Sync,
            5 => {
                *size = word;
                Op::Truncate { size: word }
            }
            6 => Op::Punch { offset: word, length: (1 + dice.roll(100_000 / WORD)) * WORD },
            7 | 8 if word < *size => {
                let length = (1 + dice.roll(30_000 / WORD)) * WORD;
                Op::Write { offset: word, length: length.min(*size - word), how: How::Mapped }
            }
            9 | 10 => {
                let (offset, length) = (word / PAGE * PAGE, (1 + dice.roll(16)) * PAGE);
                *size = (*size).max(offset + length);
                Op::Write { offset, length, how: How::Direct }
            }
            _ => {
                // Often at the end, as most do.
                let offset = if dice.roll(2) == 0 { (*size).min(LARGEST) } else { word };
                let length = (1 + dice.roll(60_000 / WORD)) * WORD;
                *size = (*size).max(offset + length);
                Op::Write { offset, length, how: How::Cached }
            }
        };
        steps.push(Step { file, op });
    }
    steps
}
