//! How many threads the load wants.
//!
//! One thread serves one busy client faster than two do: the client's processor and the server's stay the same. So a
//! session begins with one and adds another where all were busy in most looks, up to one per processor.

/// Looks that decide about one thread more: about 64 ms.
const GROW: u32 = 32;
/// Looks that decide about one thread less: about half a second.
const SHRINK: u32 = 256;

/// What the load asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    Stay,
    OneMore,
    OneLess,
}

/// Counts looks at how many threads were idle.
#[derive(Debug, Default)]
pub(crate) struct Load {
    looks: u32,
    all_busy: u32,
    spare_looks: u32,
    spare: u32,
}

impl Load {
    /// Takes note of a look at the threads that wait for a request.
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
