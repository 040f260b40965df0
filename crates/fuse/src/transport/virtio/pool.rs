//! A thread pool for requests that may take long, or that arrived many at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// Starts threads on demand, up to a maximum; they end with the pool.
#[derive(Debug)]
pub(super) struct Pool {
    // Bounded by the number of chains in the guest's queues.
    jobs: Sender<Job>,
    waiting: Receiver<Job>,
    threads: AtomicUsize,
    /// Number of threads that wait for a job, minus the jobs that wait for a thread.
    idle: Arc<AtomicIsize>,
    max_threads: usize,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Self {
        let (jobs, waiting) = unbounded();
        Self { jobs, waiting, threads: AtomicUsize::new(0), idle: Arc::default(), max_threads: limit }
    }

    pub(super) fn run(&self, job: Job) {
        let spare = self.idle.fetch_sub(1, Ordering::AcqRel);
        if spare <= 0 && self.threads.load(Ordering::Relaxed) < self.max_threads {
            self.start();
        }
        if let Err(refused) = self.jobs.send(job) {
            (refused.0)();
        }
    }

    fn start(&self) {
        let number = self.threads.fetch_add(1, Ordering::Relaxed);
        let (waiting, spare) = (self.waiting.clone(), self.idle.clone());
        let started = thread::Builder::new().name(format!("shunt-guest-{number}")).spawn(move || {
            loop {
                spare.fetch_add(1, Ordering::AcqRel);
                let Ok(job) = waiting.recv() else { break };
                job();
            }
        });
        if let Err(error) = started {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start one more thread for the requests of a guest");
        }
    }

    /// Reports whether the pool has any thread to run jobs.
    pub(super) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 0
    }
}
