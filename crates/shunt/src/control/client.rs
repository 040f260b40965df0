//! The side of `list`, `stat` and `umount`.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Pid;
use serde::de::DeserializeOwned;

use super::credentials::of_peer;
use super::dir::{SocketDir, SocketName};
use super::proto::{self, Ask, Hello, Reply};
use crate::report::Stat;

/// A daemon that does not answer for so long is stopped or stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// A daemon.
#[derive(Debug)]
pub struct Peer<'a> {
    dir: &'a SocketDir,
    name: SocketName,
    /// Its process, as the kernel tells; none if it lives in a pid namespace that we cannot see.
    pub pid: Option<Pid>,
}

/// Whether a daemon is behind a socket.
enum Knock<'a> {
    There(Peer<'a>),
    /// The daemon died: nobody will ever listen there again.
    Dead,
    Silent(io::Error),
}

impl<'a> Peer<'a> {
    fn knock(dir: &'a SocketDir, name: SocketName) -> Knock<'a> {
        let peer = connect(dir, &name).and_then(|stream| {
            // Credentials of the moment when the daemon began to listen: the daemon's own.
            let credentials = of_peer(&stream)?;
            if credentials.uid != dir.owner {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "somebody else listens"));
            }
            Ok(credentials.pid)
        });
        match peer {
            Ok(pid) => Knock::There(Peer { dir, name, pid }),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                dir.remove(name.as_str());
                Knock::Dead
            }
            Err(error) => Knock::Silent(error),
        }
    }

    /// Asks which mount it serves.
    ///
    /// # Errors
    /// It does not answer, or not in terms that we know.
    pub fn hello(&self) -> io::Result<Hello> {
        let mut hello: Hello = self.ask(Ask::Hello)?;
        // The kernel's word, in the terms of our own pid namespace.
        hello.entry.pid = self.pid.map(|pid| pid.as_raw_nonzero().get() as u32);
        Ok(hello)
    }

    /// Asks for everything.
    ///
    /// # Errors
    /// It does not answer, or not in terms that we know.
    pub fn stat(&self) -> io::Result<Stat> {
        self.ask(Ask::Stat)
    }

    /// Whether somebody still listens.
    pub fn is_there(&self) -> bool {
        connect(self.dir, &self.name).is_ok()
    }

    fn stuck(&self) -> io::Error {
        let pid = self.pid.map_or(String::new(), |pid| format!(", pid {},", pid.as_raw_nonzero()));
        let seconds = PATIENCE.as_secs();
        io::Error::new(
            io::ErrorKind::TimedOut,
            format!("nothing for {seconds} seconds: the process{pid} is stopped or stuck"),
        )
    }

    fn ask<T: DeserializeOwned>(&self, ask: Ask) -> io::Result<T> {
        let stream = connect(self.dir, &self.name)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let reply = proto::write_request(&stream, ask).and_then(|()| proto::read_reply(&stream));
        match reply {
            Ok(Reply::Ok(value)) => Ok(serde_json::from_value(value)?),
            Ok(Reply::Error(refusal)) => Err(io::Error::other(refusal.message)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(self.stuck()),
            Err(error) => Err(error),
        }
    }
}

fn connect(dir: &SocketDir, name: &SocketName) -> io::Result<UnixStream> {
    UnixStream::connect(dir.short(name.as_str()))
}

/// The daemon that serves a mount.
///
/// # Errors
/// None if there is no socket of a live daemon; an error if there is one and it cannot be reached.
pub fn find<'a>(dirs: &'a [SocketDir], name: &SocketName) -> io::Result<Option<Peer<'a>>> {
    let mut trouble = None;
    for dir in dirs {
        match Peer::knock(dir, name.clone()) {
            Knock::There(peer) => return Ok(Some(peer)),
            Knock::Dead => {}
            Knock::Silent(error) if error.kind() == io::ErrorKind::NotFound => {}
            Knock::Silent(error) => trouble = Some(error),
        }
    }
    trouble.map_or(Ok(None), Err)
}

/// All daemons that this user may ask. Sockets of dead ones are removed on the way.
pub fn survey(dirs: &[SocketDir]) -> Vec<(SocketName, Peer<'_>)> {
    let mut peers = Vec::new();
    for dir in dirs {
        for name in dir.names() {
            match Peer::knock(dir, name.clone()) {
                Knock::There(peer) => peers.push((name, peer)),
                Knock::Dead => {}
                Knock::Silent(error) => {
                    tracing::warn!("cannot ask {}/{name}: {error}", dir.path.display());
                }
            }
        }
    }
    peers
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    use super::super::server::{Provider, serve_in};
    use super::*;
    use crate::report::Entry;

    struct Fixed;

    impl Provider for Fixed {
        fn hello(&self) -> Hello {
            let entry = Entry { mountpoint: "/m".into(), kind: "mirror".into(), ..Entry::default() };
            Hello { entry, passthrough_reason: None }
        }

        fn stat(&self) -> Stat {
            Stat { mountpoint: "/m".into(), ..Stat::default() }
        }
    }

    fn name(text: &str) -> SocketName {
        SocketName::recognise(text.as_ref()).unwrap()
    }

    #[test]
    fn a_daemon_is_found_and_asked_and_gone() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-2.sock");
        let control = serve_in(SocketDir::of_test(temp.path()), name.clone(), Arc::new(Fixed)).unwrap();

        let peer = find(&dirs, &name).unwrap().unwrap();
        assert_eq!(peer.hello().unwrap().entry.mountpoint, "/m");
        assert_eq!(peer.hello().unwrap().entry.pid, Some(std::process::id()));
        assert_eq!(peer.stat().unwrap(), Fixed.stat());
        assert_eq!(survey(&dirs).len(), 1);

        drop(control);
        assert!(find(&dirs, &name).unwrap().is_none());
        assert!(survey(&dirs).is_empty());
    }

    #[test]
    fn nonsense_does_not_end_the_service() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        let name = name("0:1-3.sock");
        let _control = serve_in(SocketDir::of_test(temp.path()), name.clone(), Arc::new(Fixed)).unwrap();
        for nonsense in [&b"\n"[..], b"{\"v\":9}\n", &[0; 9000], b""] {
            let mut stream = connect(&dirs[0], &name).unwrap();
            let _ = stream.write_all(nonsense);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut reply = Vec::new();
            let _ = stream.read_to_end(&mut reply);
        }
        assert!(find(&dirs, &name).unwrap().unwrap().stat().is_ok());
    }

    #[test]
    fn sockets_of_the_dead_are_cleared_away() {
        let temp = tempfile::tempdir().unwrap();
        let dirs = [SocketDir::of_test(temp.path())];
        drop(UnixListener::bind(temp.path().join("0:1-4.sock")).unwrap());
        std::fs::write(temp.path().join("note.txt"), "not ours").unwrap();
        assert!(survey(&dirs).is_empty());
        assert!(!temp.path().join("0:1-4.sock").exists());
        assert!(temp.path().join("note.txt").exists());
    }
}
