//! Random calls of the module from several threads: valid ones, invalid ones, and those at the limits, while other threads open
//! and close connections and files. Nothing checks the results. The kernel must survive, its log must stay silent
//! (`lab/extmap`), each call must end, and the module must be unloadable afterwards.
//!
//! `FUZZ_TIME` (seconds) and `FUZZ_SEED`: the seed of the first round. Each round prints its seed. The seed repeats the calls of
//! each thread, and not their interleaving.

mod arena;
mod calls;
mod pool;
mod thread;
mod values;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::disk::{Disk, module_is_here};
use super::race::number;
use pool::Pool;
use thread::Thread;

/// Size of the disk in blocks.
const BLOCKS: u64 = 256;
/// Threads that make random calls.
const THREADS: u64 = 5;
/// Calls of each thread in a round.
const CALLS: u64 = 400;
/// A round ends after this time, or a call hangs. Rounds take seconds.
const ROUND_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn random_calls() {
    if !module_is_here() {
        return;
    }
    let (first, time) = (number("FUZZ_SEED", 1), Duration::from_secs(number("FUZZ_TIME", 10)));
    let begun = Instant::now();
    let mut seed = first;
    while seed == first || begun.elapsed() < time {
        println!("fuzz: seed {seed}");
        round(seed);
        seed += 1;
    }
    println!("fuzz: {} rounds, next seed {seed}", seed - first);
}

fn round(seed: u64) {
    let disks = [Disk::writable(BLOCKS), Disk::new(BLOCKS)];
    let pool = Pool::default();
    let (ended, end) = channel();
    std::thread::scope(|scope| {
        let devices = disks.each_ref().map(|disk| &disk.device);
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (pool, ended) = (&pool, ended.clone());
                scope.spawn(move || {
                    let mut thread = Thread::new(pool, devices, seed * THREADS + n);
                    (0..CALLS).for_each(|_| thread.call());
                    ended.send(()).unwrap();
                })
            })
            .collect();
        // Its copies end with the threads, also where one panics.
        drop(ended);
        let server = scope.spawn(|| pool.serve(seed));
        let deadline = Instant::now() + ROUND_TIMEOUT;
        for _ in 0..THREADS {
            match end.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    println!("fuzz: FAILED: a call hangs, seed {seed}");
                    print_stacks();
                    // The threads cannot be joined.
                    std::process::abort();
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        pool.end();
        for thread in threads {
            thread.join().unwrap_or_else(|_| panic!("seed {seed}"));
        }
        server.join().unwrap();
    });
}

/// Prints where each thread is in the kernel.
fn print_stacks() {
    for thread in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |name: &str| std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        println!("thread {}: {}{}", thread.file_name().display(), read("syscall"), read("stack"));
    }
}
