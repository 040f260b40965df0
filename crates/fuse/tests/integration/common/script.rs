//! The scripted behaviour of the test file system, and the log of its requests.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use shunt_fuse::{Errno, NodeId, Opcode};

/// The behaviour of a request before it is served as usual.
pub enum Behaviour {
    Go,
    Fail(Errno),
    /// Block the thread.
    Block(Duration),
    /// Block the thread until the gate is opened.
    BlockUntil(GateHandle),
    /// Wait without occupying a thread.
    Wait(GateHandle),
    /// Wait until the caller is interrupted, then fail with EINTR.
    UntilInterrupted,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Call {
    pub op: Opcode,
    pub node: NodeId,
    /// The (first) name in the request, or of an attribute.
    pub name: Vec<u8>,
    /// The arguments as `Debug` shows them.
    pub args: String,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub groups: Vec<u32>,
}

impl Call {
    pub fn has(&self, text: &str) -> bool {
        self.args.contains(text)
    }
}

/// Maximum number of recent calls kept; all are counted.
const MAX_KEPT_CALLS: usize = 4096;

#[derive(Default)]
pub struct Log {
    calls: Mutex<VecDeque<Call>>,
}

impl Log {
    pub fn add(&self, call: Call) {
        let mut calls = self.calls.lock();
        if calls.len() == MAX_KEPT_CALLS {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    pub fn of(&self, op: Opcode) -> Vec<Call> {
        self.calls.lock().iter().filter(|call| call.op == op).cloned().collect()
    }

    /// Returns the most recent call of an operation.
    #[track_caller]
    pub fn last(&self, op: Opcode) -> Call {
        self.of(op).pop().unwrap_or_else(|| panic!("no {} request arrived", op.name()))
    }

    pub fn count(&self, op: Opcode) -> usize {
        self.calls.lock().iter().filter(|call| call.op == op).count()
    }

    pub fn clear(&self) {
        self.calls.lock().clear();
    }
}

/// A gate for handlers, closed until it is opened or dropped: a failing test must not leave anything waiting.
#[derive(Default)]
pub struct Gate(GateHandle);

/// A handle on a gate, for handlers.
#[derive(Clone, Default)]
pub struct GateHandle(Arc<GateState>);

#[derive(Default)]
struct GateState {
    state: Mutex<(bool, Vec<Waker>)>,
    arrived: AtomicUsize,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes all requests of this operation wait at a new gate.
    pub fn before(fs: &super::TestFs, op: Opcode) -> Self {
        let gate = Self::new();
        let door = gate.door();
        fs.script(move |call| match call.op == op {
            true => Behaviour::Wait(door.clone()),
            false => Behaviour::Go,
        });
        gate
    }

    pub fn door(&self) -> GateHandle {
        self.0.clone()
    }

    pub fn open(&self) {
        let wakers = {
            let mut state = self.0.0.state.lock();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns how many handlers have arrived while it was closed.
    pub fn arrived(&self) -> usize {
        self.0.0.arrived.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl GateHandle {
    /// Blocks the thread, as a slow disk would.
    pub fn block(&self) {
        self.0.arrived.fetch_add(1, Ordering::SeqCst);
        while !self.0.state.lock().0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn pass(&self) -> impl Future<Output = ()> + Send + 'static {
        let leaf = self.0.clone();
        let mut first = true;
        poll_fn(move |context| {
            let mut state = leaf.state.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            if std::mem::take(&mut first) {
                leaf.arrived.fetch_add(1, Ordering::SeqCst);
            }
            Poll::Pending
        })
    }
}
