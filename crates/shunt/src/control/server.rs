//! The daemon's side of the control socket: one thread, one connection at a time, little memory, short timeouts. A request that
//! may have to wait for the store of a volume gets a thread of its own.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::geteuid;
use serde_json::Value;

use super::credentials::of_peer;
use super::dir::{SocketDir, SocketName};
use super::proto::{self, Hello, Reply, Request};
use super::volume::VolumeAsk;
use crate::report::Stat;

/// Timeout of a silent client, since others wait behind it.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of the requests that are answered on threads of their own.
const MAX_CLIENTS: u32 = 16;

/// The source of the replies.
pub trait Provider: Send + Sync + 'static {
    /// Identifies the mount.
    fn hello(&self) -> Hello;
    /// Reports the statistics.
    fn stat(&self) -> Stat;
    /// Verifies that another program can take over, or returns the reason why not. The returned function hands over and does not
    /// return.
    fn upgrade(&self, binary: &Path) -> Result<Box<dyn FnOnce()>, String>;
    /// Answers a request about a volume. It may have to wait for the volume's store.
    fn volume(&self, _ask: &VolumeAsk) -> Result<Value, String> {
        Err("this is not a volume".to_owned())
    }
    /// Connects to the volume's store, or disconnects from it.
    fn set_online(&self, _online: bool) -> Result<(), String> {
        Err("this is not a volume".to_owned())
    }
}

/// The control socket; removed on drop.
#[derive(Debug)]
pub struct Control {
    dir: SocketDir,
    name: SocketName,
}

/// Answers requests about a mount from a thread of its own.
///
/// # Errors
/// The socket cannot be created.
pub fn serve(name: SocketName, provider: Arc<dyn Provider>) -> io::Result<Control> {
    serve_in(SocketDir::own()?, name, provider)
}

pub(super) fn serve_in(dir: SocketDir, name: SocketName, provider: Arc<dyn Provider>) -> io::Result<Control> {
    // It listens before it has its name: a client that finds a refusing socket may remove it as a dead daemon's.
    let new = format!(".new-{}", std::process::id());
    dir.remove(&new);
    let listener = UnixListener::bind(dir.short(&new))?;
    dir.rename(&new, name.as_str())?;
    thread::Builder::new().name("control".into()).spawn(move || listen(&listener, &provider))?;
    Ok(Control { dir, name })
}

impl Control {
    /// The path of the socket.
    pub fn path(&self) -> PathBuf {
        self.dir.path.join(self.name.as_str())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.dir.remove(self.name.as_str());
    }
}

fn listen(listener: &UnixListener, provider: &Arc<dyn Provider>) {
    let waiting = Arc::new(AtomicU32::new(0));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                if let Err(error) = answer(stream, provider, &waiting) {
                    tracing::debug!(%error, "a control connection failed");
                }
            }
            // A lack of descriptors, for example, is temporary.
            Err(error) => {
                tracing::debug!(%error, "cannot accept a control connection");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn answer(stream: UnixStream, provider: &Arc<dyn Provider>, waiting: &Arc<AtomicU32>) -> io::Result<()> {
    let peer = of_peer(&stream)?;
    if peer.uid != 0 && peer.uid != geteuid().as_raw() {
        // The mode of the directory already keeps other users out.
        return Ok(());
    }
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let reply = match proto::read_request(&stream)? {
        Ok(Request::Hello) => ok(serde_json::to_value(provider.hello())),
        Ok(Request::Stat) => ok(serde_json::to_value(provider.stat())),
        Ok(Request::Online(online)) => match provider.set_online(online) {
            Ok(()) => Reply::Ok(Value::Null),
            Err(reason) => Reply::error("refused", reason),
        },
        Ok(Request::Volume(ask)) => return answer_aside(stream, ask, provider.clone(), waiting.clone()),
        Ok(Request::Upgrade { binary }) => match provider.upgrade(&binary) {
            Ok(go) => {
                // The client may have exited; the upgrade was requested nevertheless.
                let _ = proto::write_reply(&stream, Reply::Ok(Value::Null));
                go();
                return Ok(());
            }
            Err(reason) => Reply::error("refused", reason),
        },
        Err(refusal) => refusal,
    };
    proto::write_reply(&stream, reply)
}

/// Answers a request on a thread of its own.
fn answer_aside(
    stream: UnixStream,
    ask: VolumeAsk,
    provider: Arc<dyn Provider>,
    waiting: Arc<AtomicU32>,
) -> io::Result<()> {
    if waiting.load(Ordering::Relaxed) >= MAX_CLIENTS {
        return proto::write_reply(
            &stream,
            Reply::error("refused", "too many requests wait for the store; try again"),
        );
    }
    waiting.fetch_add(1, Ordering::Relaxed);
    let count = waiting.clone();
    let started = thread::Builder::new().name("control-volume".into()).spawn(move || {
        let reply = provider.volume(&ask).map_or_else(|reason| Reply::error("refused", reason), Reply::Ok);
        if let Err(error) = proto::write_reply(&stream, reply) {
            tracing::debug!(%error, "a control connection failed");
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    });
    if started.is_err() {
        count.fetch_sub(1, Ordering::Relaxed);
    }
    started.map(drop)
}

fn ok(value: serde_json::Result<Value>) -> Reply {
    value.map_or_else(|error| Reply::error("failed", error), Reply::Ok)
}
