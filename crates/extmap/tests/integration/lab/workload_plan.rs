//! Plan of the recorded work: file operations up to the power cut. One seed yields the same plan in the lab, where it is
//! executed, and in the test that checks the result.

use super::rng::Rng;

/// Name of the file on the recorded disk that contains the file system.
pub const IMAGE: &str = "image";
/// Name of the file beside it that holds the number of the last begun step; 0 is none.
pub const MARK: &str = "mark";
/// Size of the image in bytes.
pub const SIZE: u64 = 64 << 20;

/// Maximum number of files at a time.
const FILES: u64 = 6;
const LARGEST: u64 = 1 << 20;
/// All offsets and lengths are multiples of this.
const WORD: u64 = super::tagged_content::WORD;
const PAGE: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
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
        how: WriteMode,
    },
    Truncate {
        size: u64,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Sync,
    /// `sync(2)`; but stock FUSE does not pass it to the daemon, so nothing becomes durable by it.
    SyncAll,
    Remove,
}

/// A step on a file. Each file has a unique number, so that data in blocks freed with another file is recognised.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    pub file: u8,
    pub op: Op,
}

pub fn name(file: u8) -> String {
    format!("f{file}")
}

/// Generates as many steps as the numbers of files allow, at most `limit`.
pub fn steps(seed: u64, limit: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut files = vec![None::<(u8, u64)>; FILES as usize];
    let (mut steps, mut last) = (Vec::new(), 0);
    while steps.len() < limit && last < 250 {
        let slot = &mut files[rng.roll(FILES) as usize];
        let Some((file, size)) = slot else {
            last += 1;
            *slot = Some((last, 0));
            steps.push(Step { file: last, op: Op::Create });
            continue;
        };
        let (file, word) = (*file, rng.roll(LARGEST / WORD) * WORD);
        let op = match rng.roll(16) {
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
            6 => Op::Punch { offset: word, length: (1 + rng.roll(100_000 / WORD)) * WORD },
            7 | 8 if word < *size => {
                let length = (1 + rng.roll(30_000 / WORD)) * WORD;
                Op::Write { offset: word, length: length.min(*size - word), how: WriteMode::Mapped }
            }
            9 | 10 => {
                let (offset, length) = (word / PAGE * PAGE, (1 + rng.roll(16)) * PAGE);
                *size = (*size).max(offset + length);
                Op::Write { offset, length, how: WriteMode::Direct }
            }
            _ => {
                // Appends are frequent, as in real workloads.
                let offset = if rng.roll(2) == 0 { (*size).min(LARGEST) } else { word };
                let length = (1 + rng.roll(60_000 / WORD)) * WORD;
                *size = (*size).max(offset + length);
                Op::Write { offset, length, how: WriteMode::Cached }
            }
        };
        steps.push(Step { file, op });
    }
    steps
}
