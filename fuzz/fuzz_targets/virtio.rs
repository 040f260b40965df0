//! Fuzz target: arbitrary bytes as the actions of a guest driver on its memory, descriptors and ring. Nothing panics or hangs,
//! and every used descriptor is returned.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use shunt_fuse::virtiofs::test_driver::{
    AVAILABLE_RING_ADDRESS, BUFFERS_ADDRESS, Descriptor, QUEUE_ENTRIES, REGION_BYTES, REPLY_ADDRESS,
    TABLE_ADDRESS, TestDriver, USED_RING_ADDRESS,
};
use shunt_fuse_abi::{InHeader, Opcode};
use shunt_fuse_mock::memfs::{Limits, MemFs};

/// Maximum number of steps in one input.
const MAX_STEPS: usize = 96;

/// The remaining input; zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (now, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        now
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    /// Returns an address in memory, outside, at the edge of both, in the rings, or one that overflows.
    fn address(&mut self) -> u64 {
        let (kind, near) = (self.byte(), u64::from(self.word()));
        match kind % 8 {
            0 => REGION_BYTES - near,
            1 => REGION_BYTES + near,
            2 => u64::MAX - near,
            3 => 2 * REGION_BYTES + near * 16,
            4 => {
                [TABLE_ADDRESS, AVAILABLE_RING_ADDRESS, USED_RING_ADDRESS, REPLY_ADDRESS][near as usize % 4]
                    + near / 4
            }
            _ => BUFFERS_ADDRESS + near,
        }
    }

    fn length(&mut self) -> u32 {
        let (kind, near) = (self.byte(), u32::from(self.word()));
        match kind % 8 {
            0 => u32::MAX - near,
            1 => near << 8,
            2 => 1 << (near % 32),
            _ => near % 600,
        }
    }

    fn descriptor(&mut self) -> Descriptor {
        let (start, length) = (self.address(), self.length());
        let next = self.byte();
        Descriptor { start, length, flags: u16::from(next >> 5), next: u16::from(next & 31) }
    }
}

/// Interrupts all pending requests.
fn interrupt_all(driver: &mut TestDriver<MemFs>) {
    for unique in 0..16_u64 {
        driver.lay_out(Opcode::Interrupt, 100, 0, &unique.to_ne_bytes(), 0);
        driver.offer(0);
        driver.kick();
    }
}

fn step(driver: &mut TestDriver<MemFs>, input: &mut Input<'_>) {
    match input.byte() % 8 {
        // A valid layout of a request that may be invalid.
        0 | 1 => {
            let (opcode, node, unique) = (input.byte(), input.byte() & 7, input.byte() & 15);
            let length = usize::from(input.byte());
            let argument = input.bytes(length);
            let opcode = Opcode::from_raw(opcode.into()).unwrap_or(Opcode::Write);
            let room = input.length();
            driver.lay_out(opcode, unique.into(), node.into(), argument, room);
            driver.offer(0);
        }
        // A header that lies, in an arbitrary chain.
        2 => {
            let header = InHeader {
                len: input.length(),
                opcode: input.byte().into(),
                unique: u64::from(input.byte() & 15),
                nodeid: u64::from(input.byte() & 7),
                total_extlen: input.word(),
                ..InHeader::default()
            };
            driver.put(BUFFERS_ADDRESS, shunt_fuse_abi::Wire::as_bytes(&header));
        }
        3 => {
            let (index, it) = (input.byte() & 31, input.descriptor());
            driver.describe(TABLE_ADDRESS, index.into(), it);
        }
        // A descriptor in an indirect table, for descriptors that point to it.
        4 => {
            let (index, it) = (input.byte() & 15, input.descriptor());
            driver.describe(BUFFERS_ADDRESS + 0x800, index.into(), it);
        }
        5 => {
            let at = BUFFERS_ADDRESS + u64::from(input.word() & 0xfff);
            let length = usize::from(input.byte());
            driver.put(at, input.bytes(length));
        }
        6 => {
            let head = input.byte();
            driver.offer(if head & 0x80 == 0 {
                u16::from(head & 31)
            } else {
                QUEUE_ENTRIES as u16 + u16::from(head)
            });
        }
        _ => driver.kick(),
    }
}

fn driver() -> TestDriver<MemFs> {
    let limits = Limits { nodes: 64, file: 64 << 10, total: 256 << 10, xattrs: 4096 };
    TestDriver::mounted(move || {
        let fs = MemFs::with_limits(limits);
        fs.plant("file", b"contents").map_err(std::io::Error::from)?;
        Ok(fs)
    })
}

thread_local! {
    /// One device for the life of the process, with a guest that boots for each input.
    static RIG: RefCell<Option<TestDriver<MemFs>>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| {
    RIG.with_borrow_mut(|kept| {
        let driver = kept.get_or_insert_with(driver);
        driver.reboot();
        let mut input = Input(bytes);
        for _ in 0..MAX_STEPS {
            if input.0.is_empty() {
                break;
            }
            step(driver, &mut input);
        }
        driver.kick();
        interrupt_all(driver);
        // The guest may have let replies overwrite the rings. This must return nevertheless.
        driver.settle();
    });
});
