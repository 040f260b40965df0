//! The client side of the control socket, for `list`, `stat`, `umount`, `upgrade` and the volume commands.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::de::DeserializeOwned;

use super::dir::{SocketDir, SocketName};
use super::proto::{self, Hello, Reply, Request};
use super::stream::Stream;
use super::volume::VolumeAsk;
use crate::report::Stat;

/// Timeout of connecting. A daemon that takes longer is stopped or stuck, or its backlog was filled on purpose.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout of a reply. A daemon that takes longer is stopped or stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of an upgrade request: the daemon tries the other program first.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout of a takeover, during which no daemon listens: it takes some milliseconds, and less than this on a busy machine.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(2);
/// Polling interval for the next daemon.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A daemon that listens on a control socket.
#[derive(Debug)]
pub struct Peer<'a> {
    dir: &'a SocketDir,
    name: SocketName,
    /// Its process, as the kernel reports it; none if it lives in a PID namespace that this process cannot see.
    pub pid: Option<Pid>,
}

/// The result of connecting to a socket.
pub(super) enum ConnectOutcome<'a> {
    Alive(Peer<'a>),
    /// The daemon died. Another one may bind its own socket to this path at any moment.
    Dead,
    Silent(io::Error),
}

impl<'a> Peer<'a> {
    pub(super) fn connect(dir: &'a SocketDir, name: SocketName, deadline: Instant) -> ConnectOutcome<'a> {
        match Stream::connect(dir, &name, deadline) {
            Ok(stream) => ConnectOutcome::Alive(Peer { dir, name, pid: stream.pid }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => ConnectOutcome::Dead,
            Err(error) => ConnectOutcome::Silent(error),
        }
    }

    /// Asks which mount it serves.
    ///
    /// # Errors
    /// It does not reply in time, or not in this version of the protocol.
    pub fn hello(&self, deadline: Instant) -> io::Result<Hello> {
        let mut hello: Hello = self.request(&Request::Hello, deadline)?;
        // The PID according to the kernel, in this process's own PID namespace.
        hello.entry.pid = self.pid.map(|pid| pid.as_raw_nonzero().get() as u32);
        Ok(hello)
    }

    /// Requests the full statistics.
    ///
    /// # Errors
    /// It does not reply within five seconds, or not in this version of the protocol.
    pub fn stat(&self) -> io::Result<Stat> {
        self.stat_until(Instant::now() + REPLY_TIMEOUT)
    }

    /// Requests the full statistics, with a deadline.
    ///
    /// # Errors
    /// It does not reply in time, or not in this version of the protocol.
    pub fn stat_until(&self, deadline: Instant) -> io::Result<Stat> {
        self.request(&Request::Stat, deadline)
    }

    /// Has it connect to the volume's store, or disconnect from it.
    ///
    /// # Errors
    /// It serves no volume, or does not reply within five seconds.
    pub fn set_online(&self, online: bool) -> io::Result<()> {
        self.request(&Request::Online(online), Instant::now() + REPLY_TIMEOUT)
    }

    /// Sends a request about a volume.
    ///
    /// # Errors
    /// It serves no volume, does not reply in time, or the request fails.
    pub fn request_volume<T: DeserializeOwned>(&self, ask: &VolumeAsk, at_most: Duration) -> io::Result<T> {
        self.request(&Request::Volume(ask.clone()), Instant::now() + at_most)
    }

    /// Asks it to hand over to another program; returns when it is about to.
    ///
    /// # Errors
    /// It refuses, or does not reply within 15 seconds.
    pub fn upgrade(&self, binary: &Path) -> io::Result<()> {
        self.request(&Request::Upgrade { binary: binary.to_owned() }, Instant::now() + UPGRADE_TIMEOUT)
    }

    /// Reports whether a daemon still listens. Takes a second at most.
    pub fn is_alive(&self) -> bool {
        match Stream::connect(self.dir, &self.name, Instant::now() + CONNECT_TIMEOUT) {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
        }
    }

    fn request<T: DeserializeOwned>(&self, ask: &Request, deadline: Instant) -> io::Result<T> {
        let mut stream = Stream::connect(self.dir, &self.name, deadline).map_err(|e| self.with_pid(e))?;
        let reply = proto::write_request(&mut stream, ask).and_then(|()| proto::read_reply(&mut stream));
        match reply.map_err(|error| self.with_pid(error))? {
            Reply::Ok(value) => Ok(serde_json::from_value(value)?),
            Reply::Error(refusal) => Err(io::Error::other(refusal.message)),
        }
    }

    /// Adds the process at fault to a timeout.
    fn with_pid(&self, error: io::Error) -> io::Error {
        match self.pid {
            Some(pid) if error.kind() == io::ErrorKind::TimedOut => io::Error::new(
                io::ErrorKind::TimedOut,
                format!(
                    "no reply in time: the process with pid {} is stopped or blocked",
                    pid.as_raw_nonzero()
                ),
            ),
            _ => error,
        }
    }
}

/// Finds the daemon that serves a mount, in directories of the mount's owner ([`SocketDir::of`]). Returns none if there is no
/// socket of a live daemon.
///
/// # Errors
/// There is a live daemon, and it cannot be reached within a second.
pub fn find<'a>(dirs: &'a [SocketDir], name: &SocketName) -> io::Result<Option<Peer<'a>>> {
    let mut trouble = None;
    for dir in dirs {
        match Peer::connect(dir, name.clone(), Instant::now() + CONNECT_TIMEOUT) {
            ConnectOutcome::Alive(peer) => return Ok(Some(peer)),
            ConnectOutcome::Dead => {}
            ConnectOutcome::Silent(error) if error.kind() == io::ErrorKind::NotFound => {}
            ConnectOutcome::Silent(error) => trouble = Some(error),
        }
    }
    trouble.map_or(Ok(None), Err)
}

/// Finds a daemon by [`find`] and sends it a request. During a takeover it waits for the next daemon, two seconds at most;
/// `is_over` reports that there will be none.
///
/// # Errors
/// The errors of [`find`] and of the request.
pub fn request<T>(
    dirs: &[SocketDir],
    name: &SocketName,
    is_over: impl Fn() -> bool,
    question: impl Fn(&Peer<'_>) -> io::Result<T>,
) -> io::Result<Option<T>> {
    let end = Instant::now() + TAKEOVER_TIMEOUT;
    loop {
        match find(dirs, name)?.map(|peer| question(&peer)) {
            Some(Ok(answer)) => return Ok(Some(answer)),
            Some(Err(error)) if !is_cut_short(&error) => return Err(error),
            none if dirs.is_empty() || Instant::now() > end || is_over() => return none.transpose(),
            _ => std::thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Reports whether the daemon ended before it replied.
fn is_cut_short(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::sync::Arc;

    use super::super::server::{Provider, serve_in};
    use super::*;
    use crate::report::Entry;

    /// A daemon with constant replies.
    pub struct Fixed;

    impl Provider for Fixed {
        fn hello(&self) -> Hello {
            let entry = Entry { mountpoint: "/m".into(), kind: "mirror".into(), ..Entry::default() };
            Hello { entry, passthrough_reason: None }
        }

        fn stat(&self) -> Stat {
            Stat { mountpoint: "/m".into(), ..Stat::default() }
        }

        fn upgrade(&self, binary: &Path) -> Result<Box<dyn FnOnce()>, String> {
            if binary == "/good" { Ok(Box::new(|| ())) } else { Err("bad".into()) }
        }
    }

    /// A socket whose backlog is full, and the connection that fills it.
    pub fn deaf(path: &Path) -> impl Sized + use<> {
        let listener = UnixListener::bind(path).unwrap();
        // The backlog has room for one connection.
        rustix::net::listen(&listener, 0).unwrap();
        (UnixStream::connect(path).unwrap(), listener)
    }

    pub fn name(text: &str) -> SocketName {
        SocketName::recognise(text.as_ref()).unwrap()
    }

    fn reply_deadline() -> Instant {
        Instant::now() + REPLY_TIMEOUT
    }

    #[test]
    fn a_daemon_is_found_and_asked_and_gone() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-2.sock");
        let control = serve_in(SocketDir::of_test(temp.path()), name.clone(), Arc::new(Fixed)).unwrap();

        let peer = find(&dirs, &name).unwrap().unwrap();
        assert_eq!(peer.hello(reply_deadline()).unwrap().entry.mountpoint, "/m");
        assert_eq!(peer.hello(reply_deadline()).unwrap().entry.pid, Some(std::process::id()));
        assert_eq!(peer.stat().unwrap(), Fixed.stat());
        peer.upgrade(Path::new("/good")).unwrap();
        assert_eq!(peer.upgrade(Path::new("/other")).unwrap_err().to_string(), "bad");

        drop(control);
        assert!(find(&dirs, &name).unwrap().is_none());
    }

    #[test]
    fn between_two_daemons_the_next_one_is_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-8.sock");
        // The previous daemon was killed: its socket still exists.
        drop(UnixListener::bind(temp.path().join("0:1-8.sock")).unwrap());
        let next = std::thread::spawn({
            let (dir, name) = (SocketDir::of_test(temp.path()), name.clone());
            move || {
                std::thread::sleep(10 * POLL_INTERVAL);
                serve_in(dir, name, Arc::new(Fixed)).unwrap()
            }
        });
        assert_eq!(request(&dirs, &name, || false, |peer| peer.stat()).unwrap(), Some(Fixed.stat()));
        drop(next.join().unwrap());
        assert_eq!(request(&dirs, &name, || true, |peer| peer.stat()).unwrap(), None);
    }

    #[test]
    fn an_answer_cut_short_is_asked_for_again() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-9.sock");
        let _control = serve_in(SocketDir::of_test(temp.path()), name.clone(), Arc::new(Fixed)).unwrap();
        let asked = std::cell::Cell::new(0);
        let question = |peer: &Peer<'_>| {
            asked.set(asked.get() + 1);
            if asked.get() == 1 { Err(io::ErrorKind::UnexpectedEof.into()) } else { peer.stat() }
        };
        assert_eq!(request(&dirs, &name, || false, question).unwrap(), Some(Fixed.stat()));
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn nonsense_does_not_end_the_service() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-3.sock");
        let _control = serve_in(SocketDir::of_test(temp.path()), name.clone(), Arc::new(Fixed)).unwrap();
        for nonsense in [&b"\n"[..], b"{\"v\":9}\n", &[0; 9000], b""] {
            let mut stream = Stream::connect(&dirs[0], &name, reply_deadline()).unwrap();
            let _ = stream.write_all(nonsense);
            let _ = stream.end();
            let mut reply = Vec::new();
            let _ = stream.read_to_end(&mut reply);
        }
        assert!(find(&dirs, &name).unwrap().unwrap().stat().is_ok());
    }

    #[test]
    fn a_full_backlog_does_not_hang() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let _deaf = deaf(&temp.path().join("0:1-5.sock"));
        let begun = Instant::now();
        let error = find(&dirs, &name("0:1-5.sock")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() < 3 * CONNECT_TIMEOUT, "{:?}", begun.elapsed());
    }

    #[test]
    fn an_answer_in_drops_does_not_hang() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let listener = UnixListener::bind(temp.path().join("0:1-6.sock")).unwrap();
        std::thread::spawn(move || {
            let Ok((_, _)) = listener.accept() else { return };
            let Ok((mut stream, _)) = listener.accept() else { return };
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let peer = find(&dirs, &name("0:1-6.sock")).unwrap().unwrap();
        let error = peer.hello(Instant::now() + Duration::from_millis(300)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn links_and_files_are_not_asked() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-7.sock");
        let _listener = UnixListener::bind(temp.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", temp.path().join("0:1-7.sock")).unwrap();
        assert!(find(&dirs, &name).is_err());
        std::fs::remove_file(temp.path().join("0:1-7.sock")).unwrap();
        std::fs::write(temp.path().join("0:1-7.sock"), "").unwrap();
        assert!(find(&dirs, &name).is_err());
        assert!(temp.path().join("0:1-7.sock").exists());
    }
}
