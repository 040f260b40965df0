//! A file system whose handlers wait at gates that a test controls.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use shunt_fuse::*;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::Operation;
use shunt_fuse_mock::{MockKernel, OpenFile, Pending, Served};

/// A gate that is closed until a test opens it.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(bool, Vec<Waker>)>,
    opened: Condvar,
}

impl Gate {
    pub fn open(&self) {
        let mut state = self.state.lock();
        state.0 = true;
        state.1.drain(..).for_each(Waker::wake);
        self.opened.notify_all();
    }

    pub fn pass(self: Arc<Self>) -> impl Future<Output = ()> + Send {
        poll_fn(move |context| {
            let mut state = self.state.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1.push(context.waker().clone());
            Poll::Pending
        })
    }

    pub fn pass_blocking(&self) {
        let mut state = self.state.lock();
        while !state.0 {
            self.opened.wait(&mut state);
        }
    }
}

/// Node id of the only file.
pub const FILE: u64 = 2;

/// READ waits for the gate of its offset, WRITE for that or an interrupt, READLINK blocks its thread on the gate of its node,
/// GETATTR replies at once.
#[derive(Default)]
pub struct Gated {
    gates: Mutex<HashMap<u64, Arc<Gate>>>,
    pub entered: AtomicUsize,
    pub interrupted: AtomicUsize,
}

impl Gated {
    pub fn gate(&self, number: u64) -> Arc<Gate> {
        self.gates.lock().entry(number).or_default().clone()
    }

    pub fn open_all(&self) {
        self.gates.lock().values().for_each(|gate| gate.open());
    }
}

pub fn attributes(node: NodeId) -> Attributes {
    let mode = if node == NodeId::ROOT { 0o040_755 } else { 0o100_644 };
    Attributes { ino: node.0, mode, nlink: 1, size: 1 << 20, ..Attributes::default() }
}

impl FileSystem for Gated {
    async fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> Result<(Attributes, Expiry), Errno> {
        Ok((attributes(node), Expiry::FOREVER))
    }

    async fn read(&self, _: &Request<'_>, _: NodeId, args: ReadArgs) -> Result<Data<'_>, Errno> {
        let gate = self.gate(args.offset);
        self.entered.fetch_add(1, Ordering::SeqCst);
        gate.pass().await;
        Ok(args.offset.to_ne_bytes().to_vec().into())
    }

    async fn write(
        &self,
        request: &Request<'_>,
        _: NodeId,
        args: WriteArgs,
        data: WriteData<'_>,
    ) -> Result<usize, Errno> {
        let (mut gate, mut interrupted) =
            (Box::pin(self.gate(args.offset).pass()), Box::pin(request.interrupted()));
        self.entered.fetch_add(1, Ordering::SeqCst);
        let stop = poll_fn(|context| {
            if gate.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            interrupted.as_mut().poll(context).map(|()| true)
        });
        if stop.await {
            self.interrupted.fetch_add(1, Ordering::SeqCst);
            return Err(Errno::INTR);
        }
        Ok(data.len())
    }

    async fn readlink(&self, _: &Request<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        self.gate(node.0).pass_blocking();
        Ok(b"target".to_vec())
    }
}

pub fn serve(threads: usize, limit: usize) -> Served<Gated> {
    Served::new(Gated::default(), Config::new(Profile::Passthrough).threads(threads, limit))
}

pub fn read(kernel: &MockKernel, offset: u64) -> Pending {
    kernel.submit_read(&OpenFile { node: FILE, fh: 0, open_flags: 0 }, offset, 64)
}

pub fn write(kernel: &MockKernel, offset: u64) -> Pending {
    let arg = abi::WriteIn { offset, size: 4, ..Default::default() };
    kernel.submit(FILE, &Operation::Write { arg, data: b"data" })
}

/// Waits until a condition holds, for ten seconds at most.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: not true within ten seconds");
        std::thread::sleep(Duration::from_micros(200));
    }
}
