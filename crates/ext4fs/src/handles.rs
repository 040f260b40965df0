//! Numbers of open handles: small ones, and each in use once, as a takeover requires.

use parking_lot::Mutex;
use shunt_fuse::FileHandle;

/// The numbers in use.
#[derive(Debug, Default)]
pub(crate) struct Handles(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    free: Vec<u32>,
    /// No number above this was ever used.
    last: u32,
}

impl Handles {
    /// Takes a number, which is not 0.
    pub(crate) fn take(&self) -> u32 {
        let mut numbers = self.0.lock();
        numbers.free.pop().unwrap_or_else(|| {
            numbers.last += 1;
            numbers.last
        })
    }

    /// Gives the number of a handle back.
    pub(crate) fn give_back(&self, handle: FileHandle) {
        self.0.lock().free.push(handle.0 as u32);
    }

    /// Takes the numbers of the handles of an earlier daemon.
    pub(crate) fn adopt(&self, handles: impl Iterator<Item = FileHandle>) {
        let mut used: Vec<u32> = handles.map(|handle| handle.0 as u32).collect();
        used.sort_unstable();
        let mut numbers = self.0.lock();
        for number in used {
            let from = numbers.last + 1;
            numbers.free.extend(from..number);
            numbers.last = numbers.last.max(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_once() {
        let handles = Handles::default();
        assert_eq!([handles.take(), handles.take(), handles.take()], [1, 2, 3]);
        handles.give_back(FileHandle(7 << 32 | 2));
        assert_eq!([handles.take(), handles.take()], [2, 4]);
        let later = Handles::default();
        later.adopt([5, 2, 1 << 40 | 2].map(FileHandle).into_iter());
        let mut taken: Vec<_> = (0..5).map(|_| later.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 3, 4, 6, 7]);
    }
}
