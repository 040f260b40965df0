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

use std::sync::atomic::{AtomicU64, Ordering};
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
/// A call that takes longer hangs. Most take milliseconds, and those that wait for a grace period of RCU seconds where the kernel is
/// emulated.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

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
    let calls: [AtomicU64; THREADS as usize] = Default::default();
    std::thread::scope(|scope| {
        let devices = disks.each_ref().map(|disk| &disk.device);
        let threads: Vec<_> = (0..THREADS)
            .map(|n| {
                let (pool, ended, done) = (&pool, ended.clone(), &calls[n as usize]);
                scope.spawn(move || {
                    let mut thread = Thread::new(pool, devices, seed * THREADS + n);
                    for _ in 0..CALLS {
                        thread.call();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                    ended.send(()).unwrap();
                })
            })
            .collect();
        // Its copies end with the threads, also where one panics.
        drop(ended);
        let server = scope.spawn(|| pool.serve(seed));
        let mut progress = calls.each_ref().map(|done| (done.load(Ordering::Relaxed), Instant::now()));
        // Until the last thread has dropped its end.
        while !matches!(end.recv_timeout(Duration::from_secs(1)), Err(RecvTimeoutError::Disconnected)) {
            for (done, (before, since)) in calls.iter().zip(&mut progress) {
                let now = done.load(Ordering::Relaxed);
                if now != *before || now == CALLS {
                    (*before, *since) = (now, Instant::now());
                }
                if since.elapsed() > CALL_TIMEOUT {
                    println!("fuzz: FAILED: a call hangs, seed {seed}");
                    print_stacks();
                    // The threads cannot be joined.
                    std::process::abort();
                }
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
