//! Load estimation: decides by sampling how many threads a session needs.
//!
//! One thread serves one busy client faster than two do: client and server stay on the same CPUs. A session therefore begins with
//! one thread and adds another when all were busy in most samples, up to one per CPU.

/// Samples that decide about adding a thread: about 64 ms.
const GROW_SAMPLES: u32 = 32;
/// Samples that decide about removing a thread: about half a second.
const SHRINK_SAMPLES: u32 = 256;

/// The recommended change of the number of threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadChange {
    Keep,
    Add,
    Remove,
}

/// Counts samples of the number of idle threads.
#[derive(Debug, Default)]
pub(crate) struct Load {
    samples: u32,
    all_busy: u32,
    spare_samples: u32,
    idle_samples: u32,
}

impl Load {
    /// Records a sample of the number of threads that wait for a request.
    pub(crate) fn sample(&mut self, idle: usize) -> ThreadChange {
        self.samples += 1;
        self.spare_samples += 1;
        self.all_busy += u32::from(idle == 0);
        self.idle_samples += u32::from(idle >= 2);
        if self.samples == GROW_SAMPLES {
            let busy = self.all_busy;
            (self.samples, self.all_busy) = (0, 0);
            if busy * 8 >= GROW_SAMPLES * 7 {
                (self.spare_samples, self.idle_samples) = (0, 0);
                return ThreadChange::Add;
            }
        }
        if self.spare_samples == SHRINK_SAMPLES {
            let spare = self.idle_samples;
            (self.spare_samples, self.idle_samples) = (0, 0);
            if spare * 8 >= SHRINK_SAMPLES * 7 {
                return ThreadChange::Remove;
            }
        }
        ThreadChange::Keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(looks: impl Iterator<Item = usize>) -> Vec<ThreadChange> {
        let mut load = Load::default();
        looks.map(|idle| load.sample(idle)).filter(|wish| *wish != ThreadChange::Keep).collect()
    }

    #[test]
    fn a_single_busy_client_keeps_one_thread() {
        assert_eq!(changes((0..1000).map(|n| n % 2)), []);
    }

    #[test]
    fn saturation_adds_and_spare_threads_leave() {
        assert_eq!(changes((0..64).map(|_| 0)), [ThreadChange::Add; 2]);
        assert_eq!(changes((0..600).map(|_| 2)), [ThreadChange::Remove; 2]);
    }
}
