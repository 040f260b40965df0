//! Open descriptors of the module, shared by the threads, and the thread that replies to upcalls.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::disk::BLOCK;
use super::super::raw_calls::{issue, push, word};
use super::super::rng::Rng;
use super::BLOCKS;

/// An open file of the module, with its number in requests.
#[derive(Clone)]
pub struct OpenFile {
    pub file: Arc<File>,
    pub cookie: u64,
}

/// Places for descriptors. A thread that takes one out closes it as soon as no other thread uses it.
#[derive(Default)]
pub struct Pool {
    controls: [Mutex<Option<Arc<File>>>; 3],
    files: [Mutex<Option<OpenFile>>; 10],
    over: AtomicBool,
}

impl Pool {
    pub fn control(&self, rng: &mut Rng) -> Option<Arc<File>> {
        self.controls[rng.roll(3) as usize].lock().unwrap().clone()
    }

    pub fn file(&self, rng: &mut Rng) -> Option<OpenFile> {
        self.files[rng.roll(10) as usize].lock().unwrap().clone()
    }

    /// Replaces a control descriptor. The old one is closed without the lock, because that may wait.
    pub fn set_control(&self, rng: &mut Rng, new: Option<Arc<File>>) {
        let old = std::mem::replace(&mut *self.controls[rng.roll(3) as usize].lock().unwrap(), new);
        drop(old);
    }

    /// Replaces a file.
    pub fn set_file(&self, rng: &mut Rng, new: Option<OpenFile>) {
        let old = std::mem::replace(&mut *self.files[rng.roll(10) as usize].lock().unwrap(), new);
        drop(old);
    }

    /// Closes everything.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.controls.iter().for_each(|place| drop(place.lock().unwrap().take()));
        self.files.iter().for_each(|place| drop(place.lock().unwrap().take()));
    }

    /// Replies to upcalls of all connections until the end: mostly with blocks, and with errors or nothing now and then.
    pub fn serve(&self, seed: u64) {
        let mut rng = Rng::new(!seed);
        while !self.over.load(Ordering::SeqCst) {
            let controls: Vec<_> =
                self.controls.iter().flat_map(|place| place.lock().unwrap().clone()).collect();
            let replied = controls.iter().filter(|control| self.reply(control, &mut rng)).count();
            if replied == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Replies to one request.
    fn reply(&self, control: &File, rng: &mut Rng) -> bool {
        let mut request = [0u64; 5];
        if rustix::io::read(control, bytes(&mut request)).is_err() {
            return false;
        }
        let [id, cookie, kind, offset, length] = request;
        if kind == 1 && rng.roll(8) > 0 {
            self.allocate(control, cookie, offset, length.min(32 * BLOCK), rng);
        }
        let error: i32 = match rng.roll(12) {
            0 => -28,
            1 => -5,
            2 => -11,
            _ => 0,
        };
        let mut words = [id, u64::from(error.cast_unsigned())];
        let _ = issue(control.as_raw_fd(), 6, 16, 1, words.as_mut_ptr().cast());
        true
    }

    fn allocate(&self, control: &File, cookie: u64, offset: u64, length: u64, rng: &mut Rng) {
        let files: Vec<_> = self.files.iter().flat_map(|place| place.lock().unwrap().clone()).collect();
        // Files of other connections with the same number are refused.
        for open in files.iter().filter(|open| open.cookie == cookie) {
            let device = rng.roll(BLOCKS - 32) * BLOCK;
            let extent = [offset, device, length, 1];
            let mut words = push(open.file.as_raw_fd(), 1, extent.as_ptr() as u64);
            let _ = issue(control.as_raw_fd(), 3, 16, 1, words.as_mut_ptr().cast());
        }
    }
}

fn bytes(words: &mut [u64; 5]) -> &mut [u8] {
    // SAFETY: 40 bytes that are exclusively borrowed; each pattern of bits is a number.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), 40) }
}

/// The two words that a call with a descriptor and a number begins with.
pub fn descriptor(file: Option<&File>, rng: &mut Rng, high: u32) -> u64 {
    let low = match (file, rng.roll(16)) {
        (Some(file), 1..) => file.as_raw_fd(),
        (_, roll) if roll % 2 == 0 => rng.roll(64) as i32,
        _ => -1,
    };
    word(low, high)
}
