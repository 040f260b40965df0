//! The executor: threads that resume handlers that waited. A waker queues the task; another thread is started, up to a limit,
//! when no idle thread is left for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::task::Task;

/// A small pool of threads that poll woken tasks. The first task that waits starts it; it ends with the session.
#[derive(Debug)]
pub(crate) struct Executor {
    // Bounded by the number of waiting requests: a task is queued at most once.
    queue: Sender<Arc<Task>>,
    woken: Receiver<Arc<Task>>,
    threads: AtomicUsize,
    /// Number of threads that wait for a task, minus the tasks that wait for a thread. A thread that was woken a moment ago is
    /// not counted for the next task: its own task may block it.
    idle: Arc<AtomicIsize>,
    limit: usize,
    /// Threads drop CAP_FSETID, like those that read requests: handlers may register backing files.
    drops_fsetid: bool,
}

impl Executor {
    pub(crate) fn new(limit: usize, drops_fsetid: bool) -> Self {
        let (queue, woken) = unbounded();
        Self { queue, woken, threads: AtomicUsize::new(0), idle: Arc::default(), limit, drops_fsetid }
    }

    pub(crate) fn schedule(&self, task: Arc<Task>) {
        // A handler that blocks after it was resumed must not delay the others: start another thread while tasks are queued.
        let spare = self.idle.fetch_sub(1, Ordering::AcqRel);
        if spare <= 0 && self.threads.load(Ordering::Relaxed) < self.limit {
            self.start();
        }
        self.queue.send(task).ok();
    }

    fn start(&self) {
        let number = self.threads.fetch_add(1, Ordering::Relaxed);
        let (woken, spare, drops_fsetid) = (self.woken.clone(), self.idle.clone(), self.drops_fsetid);
        let started = thread::Builder::new().name(format!("shunt-task-{number}")).spawn(move || {
            if drops_fsetid {
                crate::privilege::drop_fsetid().ok();
            }
            crate::scheduling::roam();
            // An idle thread holds no sender, so this ends when the session drops its own.
            loop {
                spare.fetch_add(1, Ordering::AcqRel);
                let Ok(task) = woken.recv() else { break };
                task.run();
            }
        });
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
