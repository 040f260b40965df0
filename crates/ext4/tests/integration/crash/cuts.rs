//! Power cuts: what may be on the device when the power goes.

use shunt_ext4::device::Event;

/// Bytes that a disk writes as a whole.
const SECTOR: usize = 512;

/// The superblock: two sectors, written as a whole here, as the kernel expects it of a disk. Where it comes from a journal
/// it may be torn as well, which has a test of its own.
const SUPERBLOCK: u64 = 1024;

/// A cut: after so many events, with these bytes on the device.
pub struct Cut {
    pub after: usize,
    pub image: Vec<u8>,
}

/// Numbers that look random, and are the same each time.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % sides.max(1)
    }
}

fn apply(image: &mut [u8], event: &Event, most: usize) {
    if let Event::Write { offset, data } = event {
        let most = if *offset <= SUPERBLOCK && most < data.len() { 0 } else { most };
        let count = most.min(data.len());
        image[*offset as usize..][..count].copy_from_slice(&data[..count]);
    }
    // What is discarded may read as anything: whoever still needs it will notice this.
    if let (Event::Discard { offset, length }, 1..) = (event, most) {
        image[*offset as usize..][..*length as usize].fill(0xdd);
    }
}

/// All cuts within a write of the superblock.
pub fn within_superblocks(base: &[u8], events: &[Event], mut take: impl FnMut(Cut)) {
    let mut image = base.to_vec();
    for (place, event) in events.iter().enumerate() {
        if let Event::Write { offset: SUPERBLOCK, data } = event {
            for half in [0..SECTOR, SECTOR..data.len()] {
                let mut torn = image.clone();
                torn[SUPERBLOCK as usize..][half.clone()].copy_from_slice(&data[half]);
                take(Cut { after: place + 1, image: torn });
            }
        }
        apply(&mut image, event, usize::MAX);
    }
}

/// All cuts after a write, in order, and those after a mark that says that something must last from here on; and at each,
/// one without any write since the last flush, and `samples` in which some of them are missing, the last one maybe in part.
pub fn each(
    base: &[u8],
    events: &[Event],
    lasts: impl Fn(u64) -> bool,
    samples: usize,
    dice: &mut Dice,
    mut take: impl FnMut(Cut),
) {
    // What certainly is on the device, and what may be.
    let mut flushed = base.to_vec();
    let mut ordered = base.to_vec();
    let mut pending: Vec<&Event> = Vec::new();
    for (place, event) in events.iter().enumerate() {
        match event {
            Event::Flush => {
                pending.drain(..).for_each(|event| apply(&mut flushed, event, usize::MAX));
                continue;
            }
            Event::Mark(mark) if !lasts(*mark) => continue,
            Event::Mark(_) => {}
            Event::Write { .. } | Event::Discard { .. } => {
                apply(&mut ordered, event, usize::MAX);
                pending.push(event);
            }
        }
        let after = place + 1;
        take(Cut { after, image: ordered.clone() });
        if pending.is_empty() {
            continue;
        }
        take(Cut { after, image: flushed.clone() });
        // One write alone is there, or is not, or is there in part.
        let samples = if pending.len() == 1 { 1 } else { samples };
        for _ in 0..samples {
            let mut image = flushed.clone();
            for (place, event) in pending.iter().enumerate() {
                let Event::Write { data, .. } = event else {
                    apply(&mut image, event, dice.roll(2));
                    continue;
                };
                let last = place + 1 == pending.len();
                let most = match dice.roll(6) {
                    2 if last => dice.roll(data.len() / SECTOR) * SECTOR,
                    _ if pending.len() == 1 => dice.roll(data.len() / SECTOR) * SECTOR,
                    0 | 1 => 0,
                    _ => usize::MAX,
                };
                apply(&mut image, event, most);
            }
            take(Cut { after, image });
        }
    }
}
