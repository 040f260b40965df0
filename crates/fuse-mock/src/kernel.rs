//! The mock kernel: sends requests over a socket, and validates the replies and notifications of the server. It keeps the inode
//! cache and the page cache that a kernel would have, and records violated rules, the first of which fails the test.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use parking_lot::{Condvar, Mutex};
use shunt_fuse::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, InitFlags, InitOut, Operation, OutHeader, RequestBuilder, Wire};

use crate::caller::Caller;
use crate::check::Expected;
use crate::icache::NodeCache;
use crate::notification::Notification;
use crate::offer::Offer;
use crate::pending::{Pending, REPLY_TIMEOUT};
use crate::wire;

/// Ids of requests are even; an INTERRUPT has the id of its request with this bit set.
const INTERRUPT: u64 = 1;
/// Maximum number of violations kept.
const MAX_KEPT_VIOLATIONS: usize = 100;

/// A message of the server after its reply to INIT, in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A reply.
    Reply {
        /// Id of the request.
        unique: u64,
        /// Its error, negated as on the wire, or 0.
        error: i32,
    },
    /// A request to resend an INTERRUPT (EAGAIN).
    InterruptAgain {
        /// Id of the request to be interrupted.
        unique: u64,
    },
    /// A notification.
    Notification(Notification),
}

struct InflightRequest {
    expected: Expected,
    reply: Sender<Result<Vec<u8>, Errno>>,
}

#[derive(Default)]
struct State {
    inflight: HashMap<u64, InflightRequest>,
    /// Ids of messages sent raw: the replies to them are kept raw.
    raw: HashSet<u64>,
    cache: NodeCache,
    pages: HashMap<u64, Vec<u8>>,
    events: Vec<Event>,
    violations: Vec<String>,
    negotiated: InitFlags,
    ignores_interrupts: bool,
    paused: bool,
    disconnected: bool,
}

impl State {
    fn violation(&mut self, what: String) {
        if self.violations.len() < MAX_KEPT_VIOLATIONS {
            self.violations.push(what);
        }
    }
}

pub(crate) struct Inner {
    socket: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
    next: AtomicU64,
    caller: Mutex<Caller>,
    /// Messages sent by the receiving thread, which must not block on a server that waits for it.
    outbox: Sender<Vec<u8>>,
    raw: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
}

/// A mock kernel connected to one server.
pub struct MockKernel {
    pub(crate) inner: Arc<Inner>,
    threads: Vec<JoinHandle<()>>,
    served: Receiver<thread::Result<()>>,
}

impl std::fmt::Debug for MockKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("MockKernel")
            .field("under_way", &state.inflight.len())
            .field("held", &state.cache.len())
            .field("violations", &state.violations)
            .finish_non_exhaustive()
    }
}

impl MockKernel {
    /// Starts `server` on a thread of its own, with its end of the connection. INIT is not sent yet.
    ///
    /// # Panics
    /// Sockets or threads cannot be created.
    pub fn start(server: impl FnOnce(OwnedFd) + Send + 'static) -> Self {
        let (ours, theirs) = wire::pair(REPLY_TIMEOUT).expect("socketpair");
        let (outbox, letters) = unbounded::<Vec<u8>>();
        let inner = Arc::new(Inner {
            socket: ours,
            state: Mutex::default(),
            changed: Condvar::new(),
            next: AtomicU64::new(2),
            caller: Mutex::default(),
            outbox,
            raw: unbounded(),
        });
        let (done, served) = bounded(1);
        thread::spawn(move || {
            let server = std::panic::AssertUnwindSafe(move || server(theirs));
            done.send(std::panic::catch_unwind(server)).ok();
        });
        let receiving = inner.clone();
        let sending = inner.clone();
        let threads = vec![
            thread::spawn(move || receiving.receive()),
            thread::spawn(move || {
                // An empty message ends the thread.
                for letter in letters.iter().take_while(|letter| !letter.is_empty()) {
                    wire::send(&sending.socket, &letter).ok();
                }
            }),
        ];
        Self { inner, threads, served }
    }

    /// Sends INIT and validates the reply. If the server asks for an older major version, it offers that one, as a kernel does.
    ///
    /// # Errors
    /// The server's errno; NOTCONN where it closed the connection.
    ///
    /// # Panics
    /// The server does not reply.
    pub fn init(&self, offer: &Offer) -> Result<InitOut, Errno> {
        let payload = self.submit(0, &Operation::Init { arg: offer.wire() }).wait()?;
        let mut whole = [0; size_of::<InitOut>()];
        whole[..payload.len()].copy_from_slice(&payload);
        let out = InitOut::read_from_bytes(&whole).expect("the size was checked");
        if offer.major > out.major {
            return self.init(&Offer { major: out.major, minor: out.minor, ..*offer });
        }
        let mut state = self.inner.state.lock();
        state.negotiated = out.init_flags();
        offer.faults(&out).into_iter().for_each(|fault| state.violation(fault));
        Ok(out)
    }

    /// Returns the negotiated capabilities.
    pub fn negotiated(&self) -> InitFlags {
        self.inner.state.lock().negotiated
    }

    /// Sets the caller of all further requests.
    pub fn set_caller(&self, caller: Caller) {
        *self.inner.caller.lock() = caller;
    }

    /// Sends a request.
    ///
    /// # Panics
    /// The server stopped reading.
    pub fn submit(&self, node: u64, operation: &Operation<'_>) -> Pending {
        self.submit_expecting(node, operation, Expected::of(node, operation))
    }

    pub(crate) fn submit_expecting(
        &self,
        node: u64,
        operation: &Operation<'_>,
        expected: Expected,
    ) -> Pending {
        let unique = self.inner.next.fetch_add(2, Ordering::Relaxed);
        let caller = *self.inner.caller.lock();
        let (sender, reply) = bounded(1);
        let message = {
            let mut state = self.inner.state.lock();
            if state.disconnected {
                sender.send(Err(Errno::NOTCONN)).ok();
            } else if operation.opcode().has_reply() {
                state.inflight.insert(unique, InflightRequest { expected, reply: sender });
            } else {
                sender.send(Ok(Vec::new())).ok();
            }
            RequestBuilder::new(unique, node)
                .caller(caller.uid, caller.gid, caller.pid)
                .setxattr_ext(state.negotiated.contains(InitFlags::SETXATTR_EXT))
                .build(operation)
        };
        self.post(&message);
        Pending { unique, what: operation.opcode().name(), reply }
    }

    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// The errors of [`Pending::wait`].
    pub fn call(&self, node: u64, operation: &Operation<'_>) -> Result<Vec<u8>, Errno> {
        self.submit(node, operation).wait()
    }

    fn post(&self, message: &[u8]) {
        let sent = wire::send(&self.inner.socket, message);
        // On any other error the server has exited, which the receiving thread reports to the waiters.
        assert!(sent != Err(Errno::AGAIN), "the server does not read requests");
    }

    /// Interrupts a request, as a signal to its caller does. Sends INTERRUPT again as long as the server replies EAGAIN and the
    /// request is in flight.
    pub fn interrupt(&self, unique: u64) {
        if !self.inner.state.lock().ignores_interrupts {
            self.post(&interrupt_message(unique));
        }
    }

    /// Returns the number of requests that are not answered yet.
    pub fn under_way(&self) -> usize {
        self.inner.state.lock().inflight.len()
    }

    /// Sends bytes unchanged. The reply, if any, is returned by [`recv_raw`](Self::recv_raw).
    ///
    /// An empty message would look like the end of the connection, so it is not sent.
    pub fn send_raw(&self, message: &[u8]) {
        if let Some((header, _)) = InHeader::read_from_prefix(message) {
            self.inner.state.lock().raw.insert(header.unique);
        }
        if !message.is_empty() {
            self.post(message);
        }
    }

    /// Returns the next reply to a raw message.
    pub fn recv_raw(&self, time: Duration) -> Option<Vec<u8>> {
        self.inner.raw.1.recv_timeout(time).ok()
    }

    /// Returns an id that no request has.
    pub fn fresh_unique(&self) -> u64 {
        self.inner.next.fetch_add(2, Ordering::Relaxed)
    }

    /// Calls `look` with the inodes that the kernel holds.
    pub fn nodes<R>(&self, look: impl FnOnce(&NodeCache) -> R) -> R {
        look(&self.inner.state.lock().cache)
    }

    /// Evicts one inode and sends FORGET. No request on it may be in flight.
    pub fn forget(&self, node: u64) {
        let lookups = self.inner.state.lock().cache.evict(node);
        if let Some(nlookup) = lookups {
            self.submit(node, &Operation::Forget { nlookup });
        }
    }

    /// Evicts all inodes and sends FORGETs in batches, as under memory pressure.
    pub fn forget_all(&self) {
        let all = self.inner.state.lock().cache.evict_all();
        for batch in all.chunks(512) {
            let items: Vec<_> =
                batch.iter().map(|&(nodeid, nlookup)| abi::ForgetOne { nodeid, nlookup }).collect();
            self.submit(0, &Operation::BatchForget { items: abi::Items::new(&items) });
        }
    }

    /// Stores bytes in the page cache of a node, for RETRIEVE.
    pub fn set_pages(&self, node: u64, bytes: &[u8]) {
        self.inner.state.lock().pages.insert(node, bytes.to_vec());
    }

    /// Returns the page cache of a node, as filled by STORE.
    pub fn pages(&self, node: u64) -> Vec<u8> {
        self.inner.state.lock().pages.get(&node).cloned().unwrap_or_default()
    }

    /// Takes all recorded events.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.inner.state.lock().events)
    }

    /// Takes all recorded events, and returns the notifications among them.
    pub fn take_notifications(&self) -> Vec<Notification> {
        let only = |event| if let Event::Notification(it) = event { Some(it) } else { None };
        self.take_events().into_iter().filter_map(only).collect()
    }

    /// Waits until the recorded events satisfy `condition`; returns `false` after `time`.
    pub fn wait_events(&self, time: Duration, condition: impl Fn(&[Event]) -> bool) -> bool {
        let end = Instant::now() + time;
        let mut state = self.inner.state.lock();
        while !condition(&state.events) {
            if self.inner.changed.wait_until(&mut state, end).timed_out() {
                return condition(&state.events);
            }
        }
        true
    }

    /// Stops receiving: the server's writes will block once the socket is full.
    pub fn pause(&self) {
        self.inner.state.lock().paused = true;
    }

    /// Continues after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.inner.state.lock().paused = false;
        self.inner.changed.notify_all();
    }

    /// Refuses all further replies (the server's writes fail with EPIPE), while requests still reach the server.
    pub fn refuse_replies(&self) {
        wire::shut(&self.inner.socket, false);
    }

    /// Takes the recorded violations; they no longer fail the test.
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.inner.state.lock().violations)
    }

    /// Aborts the connection.
    pub fn hang_up(&self) {
        self.resume();
        wire::shut(&self.inner.socket, true);
    }

    /// Waits for the server to end.
    ///
    /// # Panics
    /// The server still runs after [`REPLY_TIMEOUT`], or has panicked.
    pub fn wait_server(&self) {
        match self.served.recv_timeout(REPLY_TIMEOUT) {
            Ok(Ok(())) => {}
            Ok(Err(_)) => panic!("the server panicked"),
            Err(_) => panic!("the server still runs after the connection has ended"),
        }
    }

    /// Hangs up, waits for the server, and fails on the first violation.
    ///
    /// # Panics
    /// The server still runs after [`REPLY_TIMEOUT`], has panicked, or violated a rule.
    pub fn finish(self) {
        self.hang_up();
        self.wait_server();
        if let Some(first) = self.take_violations().first() {
            panic!("the server violated a rule: {first}");
        }
    }
}

impl Drop for MockKernel {
    fn drop(&mut self) {
        self.hang_up();
        self.inner.outbox.send(Vec::new()).ok();
        for thread in self.threads.drain(..) {
            thread.join().ok();
        }
    }
}

fn interrupt_message(unique: u64) -> Vec<u8> {
    RequestBuilder::new(unique | INTERRUPT, 0).build(&Operation::Interrupt { unique })
}

impl Inner {
    fn receive(&self) {
        let mut buffer = vec![0; wire::MAX_MESSAGE_BYTES];
        while let Some(message) = wire::receive(&self.socket, &mut buffer) {
            let mut state = self.state.lock();
            while state.paused {
                self.changed.wait(&mut state);
            }
            self.take(&mut state, message);
            drop(state);
            self.changed.notify_all();
        }
        let mut state = self.state.lock();
        state.disconnected = true;
        for (_, flight) in state.inflight.drain() {
            flight.reply.send(Err(Errno::NOTCONN)).ok();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Processes one write of the server.
    fn take(&self, state: &mut State, message: &[u8]) {
        let Some((header, payload)) = OutHeader::read_from_prefix(message) else {
            return state.violation(format!("write of {} bytes, shorter than a header", message.len()));
        };
        if header.len as usize != message.len() {
            return state.violation(format!(
                "length in {header:?} differs from the write of {} bytes",
                message.len()
            ));
        }
        if header.unique == 0 {
            return self.take_notification(state, header.error, payload);
        }
        if header.error > 0 || header.error <= -512 {
            return state.violation(format!("unique {}: invalid error {}", header.unique, header.error));
        }
        if header.error != 0 && !payload.is_empty() {
            return state.violation(format!(
                "unique {}: error reply with a payload of {} bytes",
                header.unique,
                payload.len()
            ));
        }
        if header.unique & INTERRUPT != 0 {
            return self.take_interrupt_reply(state, &header);
        }
        if state.raw.remove(&header.unique) {
            self.raw.0.send(message.to_vec()).ok();
            return;
        }
        let Some(flight) = state.inflight.remove(&header.unique) else {
            return state.violation(format!("reply to unique {}, which is not in flight", header.unique));
        };
        let expected = flight.expected;
        if expected.opcode != abi::Opcode::Init {
            state.events.push(Event::Reply { unique: header.unique, error: header.error });
        }
        let judged = match header.error {
            0 => expected.judge(payload, &mut state.cache),
            _ => Ok(()),
        };
        expected.over(&mut state.cache);
        let answer = match (judged, header.error) {
            (Ok(()), 0) => Ok(payload.to_vec()),
            (Ok(()), error) => Err(Errno::from_raw_os_error(-error)),
            (Err(fault), _) => {
                state.violation(format!("{} on node {}: {fault}", expected.opcode, expected.node));
                Err(Errno::IO)
            }
        };
        flight.reply.send(answer).ok();
    }

    fn take_interrupt_reply(&self, state: &mut State, header: &OutHeader) {
        let unique = header.unique & !INTERRUPT;
        match -header.error {
            libc::ENOSYS => state.ignores_interrupts = true,
            libc::EAGAIN => {
                state.events.push(Event::InterruptAgain { unique });
                if state.inflight.contains_key(&unique) {
                    self.outbox.send(interrupt_message(unique)).ok();
                }
            }
            _ => {}
        }
    }

    fn take_notification(&self, state: &mut State, code: i32, body: &[u8]) {
        let notification = match Notification::parse(code, body) {
            Ok(notification) => notification,
            Err(fault) => return state.violation(format!("notification: {fault}")),
        };
        match &notification {
            Notification::Store { node, offset, data } => store(state, *node, *offset, data),
            Notification::Retrieve { unique, node, offset, size } => {
                let pages = state.pages.get(node).map_or(&[][..], Vec::as_slice);
                let start = pages.len().min(usize::try_from(*offset).unwrap_or(usize::MAX));
                let end = pages.len().min(start.saturating_add(*size as usize));
                let data = &pages[start..end];
                let arg =
                    abi::NotifyRetrieveIn { offset: *offset, size: data.len() as u32, ..Default::default() };
                let reply = RequestBuilder::new(*unique, *node).build(&Operation::NotifyReply { arg, data });
                self.outbox.send(reply).ok();
            }
            _ => {}
        }
        state.events.push(Event::Notification(notification));
    }
}

/// Maximum size of the modelled page cache of a node.
const MAX_PAGE_CACHE_BYTES: u64 = 16 << 20;

fn store(state: &mut State, node: u64, offset: u64, data: &[u8]) {
    let end = offset.saturating_add(data.len() as u64);
    if end > MAX_PAGE_CACHE_BYTES {
        return state.violation(format!(
            "store notification up to offset {end} on node {node} exceeds the page cache"
        ));
    }
    let pages = state.pages.entry(node).or_default();
    pages.resize(pages.len().max(end as usize), 0);
    pages[offset as usize..end as usize].copy_from_slice(data);
}
