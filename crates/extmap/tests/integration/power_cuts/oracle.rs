//! Oracle for the contents that a file may have after a power cut.

use crate::lab::tagged_content::{WORD, words};
use crate::lab::workload_plan::{Op, Step};

/// A file after some steps: the number of the step that wrote each word, from 1 on; 0 for unwritten words.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub words: Vec<u32>,
}

impl Model {
    fn apply(&mut self, number: usize, op: Op) {
        let words = |bytes: u64| (bytes / WORD) as usize;
        match op {
            Op::Write { offset, length, .. } => {
                let (from, to) = (words(offset), words(offset + length));
                if self.words.len() < to {
                    self.words.resize(to, 0);
                }
                self.words[from..to].fill(number as u32 + 1);
            }
            Op::Truncate { size } => self.words.resize(words(size), 0),
            Op::Punch { offset, length } => {
                let end = self.words.len();
                self.words[words(offset).min(end)..words(offset + length).min(end)].fill(0);
            }
            Op::Create | Op::Sync | Op::SyncAll | Op::Remove => {}
        }
    }
}

/// Expected state of a file when step `begun` was begun and none after it; all earlier steps have completed.
pub struct Expected {
    file: u8,
    /// State at the last completed sync.
    durable: Option<Model>,
    /// Later operations, whose effects may be present or not.
    later: Vec<(usize, Op)>,
}

impl Expected {
    pub fn of(file: u8, steps: &[Step], begun: usize) -> Self {
        let mut known = Self { file, durable: None, later: Vec::new() };
        let mut model = Model::default();
        for (number, step) in steps.iter().enumerate().take(begun + 1) {
            if step.file != file {
                continue;
            }
            match step.op {
                Op::Sync if number < begun => {
                    known.durable = Some(model.clone());
                    known.later.clear();
                }
                op => {
                    model.apply(number, op);
                    known.later.push((number, op));
                }
            }
        }
        known
    }

    fn is_removed(&self) -> bool {
        self.later.iter().any(|(_, op)| *op == Op::Remove)
    }

    /// Checks whether the file may have this content; `None` if it does not exist.
    pub fn judge(&self, content: Option<&[u8]>) -> Result<(), String> {
        let Some(content) = content else {
            let may_miss = self.durable.is_none() || self.is_removed();
            return if may_miss { Ok(()) } else { Err(format!("file {} is missing", self.file)) };
        };
        let durable = self.durable.clone().unwrap_or_default();
        let mut model = durable.clone();
        let (mut min, mut max) = (model.words.len(), model.words.len());
        for (number, op) in &self.later {
            model.apply(*number, *op);
            (min, max) = (min.min(model.words.len()), max.max(model.words.len()));
        }
        // A removed file is truncated before it is freed.
        let min = if self.is_removed() { 0 } else { min };
        let count = content.len() / WORD as usize;
        if content.len() % WORD as usize != 0 || count < min || count > max {
            let size = content.len();
            return Err(format!("file {} has {size} bytes, not {} to {}", self.file, min * 8, max * 8));
        }
        content.chunks_exact(WORD as usize).enumerate().try_for_each(|(n, word)| {
            let before = durable.words.get(n).copied().unwrap_or(0);
            self.judge_word(n, word, before)
                .map_err(|why| format!("file {} at {}: {word:02x?}, {why}", self.file, n as u64 * WORD))
        })
    }

    fn judge_word(&self, n: usize, word: &[u8], before: u32) -> Result<(), &'static str> {
        let at = n as u64 * WORD;
        let touches = |op: &Op| match *op {
            Op::Truncate { size } => size <= at,
            Op::Punch { offset, length } => (offset..offset + length).contains(&at),
            _ => false,
        };
        if word == [0; WORD as usize] {
            let may = before == 0 || self.later.iter().any(|(_, op)| touches(op));
            return if may { Ok(()) } else { Err("zeros instead of the synced data") };
        }
        let by = u32::from(word[6]) << 8 | u32::from(word[7]);
        if word[..6] != words(self.file, Some(at), WORD as usize, 0, 0)[..6] {
            return Err("which belongs to another offset or another file");
        }
        let wrote = |(number, op): &(usize, Op)| match *op {
            Op::Write { offset, length, .. } => {
                *number as u32 == by && (offset..offset + length).contains(&at)
            }
            _ => false,
        };
        match by + 1 == before || self.later.iter().any(wrote) {
            true => Ok(()),
            false => Err("older than the synced data, or never written"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::workload_plan::WriteMode;

    const WRITE: Op = Op::Write { offset: 0, length: 16, how: WriteMode::Cached };

    fn judged(ops: &[Op], content: Option<&[u8]>) -> bool {
        let steps: Vec<Step> = ops.iter().map(|op| Step { file: 3, op: *op }).collect();
        Expected::of(3, &steps, ops.len() - 1).judge(content).is_ok()
    }

    fn written(file: u8, step: u64) -> Vec<u8> {
        words(file, Some(0), 16, 0, step)
    }

    #[test]
    fn synced_data_must_be_present() {
        let ops = [Op::Create, WRITE, Op::Sync, WRITE];
        assert!(judged(&ops, Some(&written(3, 1))));
        assert!(judged(&ops, Some(&written(3, 3))));
        for wrong in
            [&written(4, 1)[..], &written(3, 2), &written(3, 1)[..8], &[0; 16], &[0xdb; 16], &[0; 24]]
        {
            assert!(!judged(&ops, Some(wrong)), "{wrong:x?}");
        }
        assert!(!judged(&ops, None));
        assert!(judged(&[Op::Create, WRITE, Op::Sync, Op::Remove], None));
        // The sync has not completed yet.
        assert!(judged(&[Op::Create, WRITE, Op::Sync], None));
    }

    #[test]
    fn unsynced_data_may_be_present() {
        let ops = [Op::Create, WRITE, WRITE];
        for right in [None, Some(&[][..]), Some(&[0; 16]), Some(&written(3, 1)), Some(&written(3, 2))] {
            assert!(judged(&ops, right), "{right:x?}");
        }
        assert!(!judged(&ops, Some(&written(3, 0))));
        let cut = [Op::Create, WRITE, Op::Sync, Op::Truncate { size: 8 }, WRITE];
        assert!(judged(&cut, Some(&written(3, 1)[..8])));
        assert!(judged(&cut, Some(&[&written(3, 1)[..8], &[0; 8]].concat())));
        assert!(!judged(&cut, Some(&[0; 8])));
    }
}
