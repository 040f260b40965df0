//! Load estimation: decides by sampling how many threads a session needs.
//!
//! One thread serves one busy client faster than two do: client and server stay on the same CPUs. A session therefore begins with
//! one thread and adds another when all were busy in most samples, up to one per CPU.

/// Samples that decide about adding a thread: about 64 ms.
const GROW: u32 = 32;
/// Samples that decide about removing a thread: about half a second.
const SHRINK: u32 = 256;

/// The recommended change of the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Stay,
    OneMore,
    OneLess,
}

/// Counts samples of the number of idle threads.
#[derive(Debug, Default)]
pub(crate) struct Load {
    looks: u32,
    all_busy: u32,
    spare_looks: u32,
    spare: u32,
}

impl Load {
    /// Records a sample of the number of threads that wait for a request.
    pub(crate) fn look(&mut self, idle: usize) -> Wish {
        self.looks += 1;
        self.spare_looks += 1;
        self.all_busy += u32::from(idle == 0);
        self.spare += u32::from(idle >= 2);
        if self.looks == GROW {
            let busy = self.all_busy;
            (self.looks, self.all_busy) = (0, 0);
            if busy * 8 >= GROW * 7 {
                (self.spare_looks, self.spare) = (0, 0);
                return Wish::OneMore;
            }
        }
        if self.spare_looks == SHRINK {
            let spare = self.spare;
            (self.spare_looks, self.spare) = (0, 0);
            if spare * 8 >= SHRINK * 7 {
                return Wish::OneLess;
            }
        }
        Wish::Stay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(looks: impl Iterator<Item = usize>) -> Vec<Wish> {
        let mut load = Load::default();
        looks.map(|idle| load.look(idle)).filter(|wish| *wish != Wish::Stay).collect()
    }

    #[test]
    fn a_single_busy_client_keeps_one_thread() {
        assert_eq!(wishes((0..1000).map(|n| n % 2)), []);
    }

    #[test]
    fn saturation_adds_and_spare_threads_leave() {
        assert_eq!(wishes((0..64).map(|_| 0)), [Wish::OneMore; 2]);
        assert_eq!(wishes((0..600).map(|_| 2)), [Wish::OneLess; 2]);
    }
}
