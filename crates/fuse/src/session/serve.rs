//! Processing of one message: parses it, runs the handler, and sends the reply or leaves it to a waiting task. Messages without a
//! reply (FORGET, INTERRUPT, the data of a retrieve) are processed at once.

use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use shunt_fuse_abi as abi;
use shunt_fuse_abi::{InHeader, Opcode, Operation};

use super::Handle;
use super::dispatch::{Reply, dispatch, is_cancellable, send};
use super::intent::Intent;
use super::interrupt::Interrupt;
use super::replay::replay;
use super::task::Task;
use crate::cache::{Notification, NotificationKind};
use crate::id::NodeId;
use crate::session::{FileSystem, Request};
use crate::transport::Channel;
use crate::transport::message::Message;
use crate::transport::payload::Payload;

/// Handles a message: replies to it, or leaves it to a task that waits.
pub(crate) fn serve<F: FileSystem>(
    fs: &Arc<F>,
    handle: &Handle,
    channel: &Arc<dyn Channel>,
    header: &InHeader,
    message: Message,
) {
    match Opcode::from_raw(header.opcode) {
        Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply) => {
            serve_without_reply(fs, handle, &message);
            return;
        }
        Some(_) => {}
        None => {
            tracing::debug!(opcode = header.opcode, "unknown operation: replying ENOSYS");
            channel.reply(header.unique, Err(Errno::NOSYS), &[]).ok();
            return;
        }
    }
    let interrupt = Arc::new(Interrupt::default());
    let handling = {
        let (fs, handle, channel) = (fs.clone(), handle.clone(), channel.clone());
        let interrupt = interrupt.clone();
        Box::pin(handle_request(fs, handle, channel, interrupt, message))
    };
    let shared = &handle.shared;
    let unique = header.unique;
    let task = Task::new(
        unique,
        is_cancellable(header.opcode),
        channel.clone(),
        shared.clone(),
        interrupt,
        handling,
    );
    let answered = task.run() || {
        // The waker may have resumed the task elsewhere, and answered it, before it is listed.
        shared.waiting.insert(unique, &task);
        task.is_answered()
    };
    if shared.early_interrupts.remove(unique) && !answered {
        task.interrupted();
    }
    if answered {
        task.unlist();
    }
}

async fn handle_request<F: FileSystem>(
    fs: Arc<F>,
    handle: Handle,
    channel: Arc<dyn Channel>,
    interrupt: Arc<Interrupt>,
    message: Message,
) {
    let started = Instant::now();
    let shared = &handle.shared;
    let parsed = match message.parse(&shared.parse) {
        Ok(parsed) => parsed,
        Err(error) => {
            shared.statistics.malformed();
            let errno = Errno::from_raw_os_error(error.errno());
            tracing::warn!(%error, "malformed request: replied {errno}");
            if let Ok(header) = abi::Request::header(&message.bytes) {
                channel.reply(header.unique, Err(errno), &[]).ok();
            }
            return;
        }
    };
    let opcode = parsed.operation.opcode();
    let touched = touched_pages(&parsed);
    let fills_pages = fills_pages(&parsed);
    let is_zero_copy = message.is_zero_copy();
    let header = parsed.header;
    shared.callers.record(header.pid, header.uid, started);
    let intent = Intent::new(shared.takeover.as_ref(), &header);
    let result = {
        let request = Request {
            header: &header,
            extensions: &parsed.ext,
            session: &handle,
            interrupt: &interrupt,
            intent: &intent,
        };
        // Rare, so boxed: otherwise the future of every request would be as large.
        let replayed = match request.is_resend() {
            true => Box::pin(replay(&*fs, &request, &parsed.operation)).await,
            false => None,
        };
        match replayed {
            Some(result) => result,
            None => dispatch(&*fs, &request, parsed.operation, message.payload.as_ref()).await,
        }
    };
    intent.end(result.as_ref().map(drop).map_err(|errno| *errno));
    shared.statistics.record(opcode, started.elapsed(), result.is_err());
    let bytes = match (&result, opcode) {
        (Ok(Reply::Data(data)), _) => {
            shared.statistics.read_bytes(data.len());
            data.len()
        }
        (Ok(Reply::Written(bytes)), Opcode::Write) => {
            shared.statistics.written_bytes(*bytes as u64);
            *bytes as u64
        }
        _ => 0,
    };
    if is_zero_copy {
        shared.statistics.zero_copied_bytes(bytes);
    }
    tracing::trace!(operation = opcode.name(), node = header.nodeid, error = ?result.as_ref().err());
    // The reply may overwrite the memory of the request.
    let Message { bytes, payload } = message;
    drop(bytes);
    match result {
        Ok(reply) => {
            let extensions = abi::Extensions::default();
            let request = Request {
                header: &header,
                extensions: &extensions,
                session: &handle,
                interrupt: &interrupt,
                intent: &intent,
            };
            send(&*fs, &request, &channel, reply).await;
        }
        Err(errno) => {
            channel.reply(header.unique, Err(errno), &[]).ok();
        }
    }
    let node = NodeId(header.nodeid);
    let is_stale = || shared.modes.is_uncached(node) || fills_pages && shared.modes.is_passed(node);
    if let Some(what) = touched.filter(|_| is_stale()) {
        if let Some(task) = Task::current() {
            task.defer(Notification::new(what).0);
        }
    }
    if let (Some(pipes), Some(Payload::Pipe(payload))) = (&shared.pipes, payload) {
        pipes.put(payload.pipe);
    }
}

/// Returns the pages that a read or write leaves in the cache. On an uncached node they are dropped again.
fn touched_pages(request: &abi::Request<'_>) -> Option<NotificationKind> {
    let (offset, size) = match &request.operation {
        Operation::Read { arg } => (arg.offset, arg.size),
        Operation::Write { arg, .. } => (arg.offset, arg.size),
        _ => return None,
    };
    let offset = i64::try_from(offset).ok()?;
    Some(NotificationKind::InvalidateNode {
        node: NodeId(request.header.nodeid),
        offset,
        length: size.into(),
    })
}

/// Reports whether a READ may fill a page of the kernel's cache: `splice` and `sendfile` read a file under direct I/O that way,
/// unless it was opened with O_DIRECT. Beside passed-through opens such a page would become stale, because their writes bypass
/// it.
fn fills_pages(request: &abi::Request<'_>) -> bool {
    const PAGE: u64 = 4096;
    let Operation::Read { arg } = &request.operation else { return false };
    let is_whole = arg.offset % PAGE == 0 && u64::from(arg.size) % PAGE == 0;
    is_whole && arg.flags & libc::O_DIRECT as u32 == 0
}

/// Handles messages without a reply: FORGET, INTERRUPT and the data of a retrieve.
fn serve_without_reply<F: FileSystem>(fs: &Arc<F>, handle: &Handle, message: &Message) {
    let started = Instant::now();
    let shared = &handle.shared;
    let parsed = match message.parse(&shared.parse) {
        Ok(parsed) => parsed,
        Err(error) => {
            shared.statistics.malformed();
            tracing::warn!(%error, "malformed message ignored");
            return;
        }
    };
    let forget = |node: u64, lookups: u64| {
        shared.modes.forget(NodeId(node));
        fs.forget(NodeId(node), lookups);
    };
    let opcode = parsed.operation.opcode();
    match parsed.operation {
        Operation::Forget { nlookup } => forget(parsed.header.nodeid, nlookup),
        Operation::BatchForget { items } => items.for_each(|item| forget(item.nodeid, item.nlookup)),
        Operation::Interrupt { unique } => interrupt(handle, unique),
        Operation::NotifyReply { data, .. } => shared.notifier.retrieved(parsed.header.unique, data),
        _ => {}
    }
    shared.statistics.record(opcode, started.elapsed(), false);
}

/// Handles INTERRUPT: the caller of a request was interrupted.
fn interrupt(handle: &Handle, unique: u64) {
    let shared = &handle.shared;
    if let Some(task) = shared.waiting.find(unique) {
        task.interrupted();
        return;
    }
    shared.early_interrupts.insert(unique);
    // The handler may have begun to wait between the two steps.
    let task = shared.waiting.find(unique);
    if let Some(task) = task.filter(|_| shared.early_interrupts.remove(unique)) {
        task.interrupted();
    }
}
