//! Power failures: the possible contents of the device at each point.

use shunt_ext4::device::Event;

/// Atomic write unit of a disk in bytes.
const SECTOR: usize = 512;

/// Offset of the superblock. Its two sectors are written atomically here, as the kernel expects of a disk. Torn superblocks that
/// a journal or backup can restore have a separate test.
const SUPERBLOCK: u64 = 1024;

/// A power failure after a number of events, with the resulting content of the device.
pub struct PowerCut {
    pub after: usize,
    pub image: Vec<u8>,
}

/// Deterministic pseudo-random numbers.
pub struct Rng(u64);

impl Rng {
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

fn apply(image: &mut [u8], event: &Event, limit: usize) {
    if let Event::Write { offset, data } = event {
        let limit = if *offset <= SUPERBLOCK && limit < data.len() { 0 } else { limit };
        let count = limit.min(data.len());
        image[*offset as usize..][..count].copy_from_slice(&data[..count]);
    }
    // Discarded ranges get undefined content, so that later use of them is detected.
    if let (Event::Discard { offset, length }, 1..) = (event, limit) {
        image[*offset as usize..][..*length as usize].fill(0xdd);
    }
}

/// Yields all power failures within a write of the superblock.
pub fn within_superblocks(base: &[u8], events: &[Event], mut take: impl FnMut(PowerCut)) {
    let mut image = base.to_vec();
    for (place, event) in events.iter().enumerate() {
        if let Event::Write { offset: SUPERBLOCK, data } = event {
            for half in [0..SECTOR, SECTOR..data.len()] {
                let mut torn = image.clone();
                torn[SUPERBLOCK as usize..][half.clone()].copy_from_slice(&data[half]);
                take(PowerCut { after: place + 1, image: torn });
            }
        }
        apply(&mut image, event, usize::MAX);
    }
}

/// Yields a power failure after each write, and after each mark from which on data must be durable. At each point, it yields one
/// image without any write since the last flush, and `samples` images that lack some of them, the last one possibly torn.
pub fn each(
    base: &[u8],
    events: &[Event],
    lasts: impl Fn(u64) -> bool,
    samples: usize,
    rng: &mut Rng,
    mut take: impl FnMut(PowerCut),
) {
    // Content that is certainly on the device, and content in write order.
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
        take(PowerCut { after, image: ordered.clone() });
        if pending.is_empty() {
            continue;
        }
        take(PowerCut { after, image: flushed.clone() });
        // A single pending write is either present, absent or torn.
        let samples = if pending.len() == 1 { 1 } else { samples };
        for _ in 0..samples {
            let mut image = flushed.clone();
            for (place, event) in pending.iter().enumerate() {
                let Event::Write { data, .. } = event else {
                    apply(&mut image, event, rng.roll(2));
                    continue;
                };
                let last = place + 1 == pending.len();
                let limit = match rng.roll(6) {
                    2 if last => rng.roll(data.len() / SECTOR) * SECTOR,
                    _ if pending.len() == 1 => rng.roll(data.len() / SECTOR) * SECTOR,
                    0 | 1 => 0,
                    _ => usize::MAX,
                };
                apply(&mut image, event, limit);
            }
            take(PowerCut { after, image });
        }
    }
}
