//! Tests with a malicious driver: nothing panics or hangs, and every chain with a valid head is returned.
//!
//! `SHUNT_SEEDS=N` sets the number of seeds.

use std::time::{Duration, Instant};

use super::*;

/// A pseudo-random number generator with a fixed seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// An address in memory, outside, near the end, or one whose sum wraps.
    fn address(&mut self) -> u64 {
        let near = self.below(64);
        match self.below(8) {
            0 => REGION_BYTES - near,
            1 => REGION_BYTES + near,
            2 => u64::MAX - near,
            3 => self.next(),
            4 => 2 * REGION_BYTES + self.below(REGION_BYTES),
            // An address within the rings themselves.
            5 => self.below(BUFFERS_ADDRESS),
            _ => BUFFERS_ADDRESS + self.below(0x1000),
        }
    }

    fn length(&mut self) -> u32 {
        let small = self.below(300) as u32;
        self.of(&[
            0,
            1,
            8,
            16,
            40,
            80,
            small,
            small,
            small,
            4096,
            1 << 16,
            1 << 20,
            u32::MAX,
            u32::MAX - small,
        ])
    }
}

/// Makes a request that is valid but for a few fields.
fn request(random: &mut Random) -> Vec<u8> {
    let opcode = match random.below(8) {
        0 => random.next() as u32,
        1 => Opcode::Write.as_raw(),
        _ => random.below(55) as u32,
    };
    let mut body = vec![0; random.below(200) as usize];
    body.iter_mut().for_each(|byte| *byte = if random.one_in(3) { random.next() as u8 } else { 0 });
    let length = InHeader::SIZE + body.len();
    let len = if random.one_in(4) { random.length() } else { length as u32 };
    let total_extlen = if random.one_in(8) { random.next() as u16 } else { 0 };
    let header = InHeader {
        len,
        opcode,
        unique: random.below(16),
        nodeid: random.below(4),
        total_extlen,
        ..Default::default()
    };
    [header.as_bytes(), &body].concat()
}

fn table(guest: &OneFileGuest, random: &mut Random, table: u64, size: u16) {
    for index in 0..size {
        let flags = random.of(&[0, NEXT, NEXT, NEXT, WRITE, WRITE, NEXT | WRITE, NEXT | WRITE, INDIRECT, 7]);
        // Mostly the next one, sometimes a loop, or beyond the table.
        let next = match random.below(4) {
            0 => random.next() as u16,
            1 => random.below(size.into()) as u16,
            _ => index + 1,
        };
        let (start, length) = (random.address(), random.length());
        guest.describe(table, index, Descriptor { start, length, flags, next });
    }
}

/// Writes an invalid request in a valid layout, or random tables.
fn attack(guest: &mut OneFileGuest, random: &mut Random) {
    let bytes = request(random);
    guest.put(BUFFERS_ADDRESS, &bytes);
    if random.one_in(2) {
        table(guest, random, TABLE_ADDRESS, QUEUE_ENTRIES as u16);
        table(guest, random, BUFFERS_ADDRESS + 0x800, 32);
    } else {
        let length = bytes.len() as u32;
        guest.describe(TABLE_ADDRESS, 0, Descriptor { start: BUFFERS_ADDRESS, length, flags: NEXT, next: 1 });
        let length = random.length();
        guest.describe(TABLE_ADDRESS, 1, Descriptor { start: REPLY_ADDRESS, length, flags: WRITE, next: 0 });
    }
    let head = if random.one_in(2) { 0 } else { random.below(QUEUE_ENTRIES) as u16 };
    guest.offer(head);
}

/// Interrupts all waiting requests.
fn interrupt_all(guest: &mut OneFileGuest) {
    for unique in 0..16_u64 {
        guest.lay_out(Opcode::Interrupt, 100, 0, &unique.to_ne_bytes(), 0);
        guest.offer(0);
        guest.kick();
    }
}

#[test]
fn arbitrary_descriptors_do_no_harm() {
    let seeds = std::env::var("SHUNT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(60);
    for seed in 0..seeds {
        let begun = Instant::now();
        let mut random = Random(seed);
        let mut guest = OneFileGuest::mounted();
        for _ in 0..40 {
            attack(&mut guest, &mut random);
            guest.kick();
            if random.one_in(4) {
                interrupt_all(&mut guest);
            }
        }
        interrupt_all(&mut guest);
        // Replies may have been written over the rings, by the guest's choice. All chains in progress are returned nevertheless:
        // this returns.
        guest.settle();
        // The next guest is served, regardless of what this one did.
        guest.reboot();
        assert!(guest.ask(Opcode::Lookup, 2, 1, b"f\0", 4096).is_some_and(|(error, _)| error == 0));
        assert!(begun.elapsed() < Duration::from_secs(20), "seed {seed} took {:?}", begun.elapsed());
    }
}

#[test]
fn void_chains_come_back_and_the_queue_goes_on() {
    let mut guest = OneFileGuest::mounted();
    let reply = Descriptor { start: REPLY_ADDRESS, length: 64, flags: WRITE, next: 0 };
    let part = |start, length, next| Descriptor { start, length, flags: NEXT, next };
    let chains: [(&str, &[Descriptor]); 8] = [
        ("a loop", &[part(BUFFERS_ADDRESS, 16, 1), part(BUFFERS_ADDRESS, 16, 0)]),
        ("an address outside guest memory", &[part(REGION_BYTES + 8, 40, 1), reply]),
        ("half of the buffer outside guest memory", &[part(REGION_BYTES - 8, 40, 1), reply]),
        ("an address that wraps", &[part(u64::MAX - 8, 40, 1), reply]),
        (
            "the reply first",
            &[Descriptor { flags: WRITE | NEXT, next: 1, ..reply }, part(BUFFERS_ADDRESS, 40, 0)],
        ),
        ("an empty chain", &[part(BUFFERS_ADDRESS, 0, 1), Descriptor { length: 0, ..reply }]),
        ("a descriptor index out of range", &[part(BUFFERS_ADDRESS, 40, 999)]),
        ("a table in a table", &[Descriptor { start: TABLE_ADDRESS, length: 32, flags: INDIRECT, next: 0 }]),
    ];
    for (what, chain) in chains {
        for (index, descriptor) in chain.iter().enumerate() {
            guest.describe(TABLE_ADDRESS, index as u16, *descriptor);
        }
        guest.offer(0);
        guest.kick();
        guest.settle();
        assert_eq!(guest.used(), guest.available, "{what}: the chain is returned");
        assert_eq!(guest.last_used(), (0, 0), "{what}: nothing is written");
        assert!(
            guest.ask(Opcode::Lookup, 2, 1, b"f\0", 4096).is_some_and(|(error, _)| error == 0),
            "after {what}"
        );
    }
}

#[test]
fn a_ring_that_lies_keeps_nobody_busy() {
    let mut guest = OneFileGuest::mounted();
    // An index beyond the size of the ring.
    let beyond = guest.available.wrapping_add(QUEUE_ENTRIES as u16 + 1);
    guest.put(AVAILABLE_RING_ADDRESS + 2, &beyond.to_le_bytes());
    let begun = Instant::now();
    guest.kick();
    guest.settle();
    assert!(begun.elapsed() < Duration::from_secs(1));
    guest.put(AVAILABLE_RING_ADDRESS + 2, &guest.available.to_le_bytes());
    assert!(guest.ask(Opcode::Lookup, 2, 1, b"f\0", 4096).is_some());
}
