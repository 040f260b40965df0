//! One thread of random calls.

use std::fs::File;
use std::sync::Arc;

use super::super::rng::Rng;
use super::arena::Arena;
use super::pool::{OpenFile, Pool};

pub struct Thread<'a> {
    pub pool: &'a Pool,
    /// A writable block device, and a read-only one.
    pub devices: [&'a File; 2],
    pub arena: Arena,
    pub rng: Rng,
}

impl<'a> Thread<'a> {
    pub fn new(pool: &'a Pool, devices: [&'a File; 2], seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        // The first numbers of similar seeds are similar.
        (0..8).for_each(|_| _ = rng.roll(2));
        Self { pool, devices, arena: Arena::new(), rng }
    }

    /// Makes one random call.
    pub fn call(&mut self) {
        let control = self.pool.control(&mut self.rng);
        let file = self.pool.file(&mut self.rng);
        let Some(control) = control else { return self.open_control() };
        match self.rng.roll(40) {
            0 => self.open_control(),
            1 => self.pool.set_control(&mut self.rng, None),
            2 | 3 => self.pool.set_file(&mut self.rng, None),
            4..=8 => self.new_file(&control),
            9..=14 => self.push(&control, file.as_ref()),
            15..=19 => self.cut(&control, file.as_ref()),
            20..=22 => self.settle(&control, file.as_ref()),
            23 | 24 => self.freed(&control, file.as_ref()),
            25 => self.reply(&control),
            26 => self.read_request(&control),
            27 => self.garbage(&control),
            _ => {
                // It may wait for a reply that nobody sends until the connection ends, which an open control descriptor prevents.
                drop(control);
                if let Some(open) = file {
                    self.use_file(&open);
                }
            }
        }
    }

    fn open_control(&mut self) {
        let mut options = File::options();
        options.read(true).write(true);
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
        let control = Arc::new(options.open("/dev/shunt_extmap").unwrap());
        (0..1 + self.rng.roll(2)).for_each(|_| self.bind(&control));
        self.pool.set_control(&mut self.rng, Some(control));
    }

    pub fn keep_file(&mut self, open: OpenFile) {
        self.pool.set_file(&mut self.rng, Some(open));
    }
}
