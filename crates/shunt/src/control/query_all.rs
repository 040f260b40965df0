//! Queries the daemons of many mounts concurrently.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, geteuid};
use shunt_fuse::mount::Dev;

use super::client::{ConnectOutcome, Peer};
use super::dir::{SocketDir, SocketName};
use super::proto::Hello;
use crate::report::Stat;

/// Deadline of all replies.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of a single daemon.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit of removing the sockets of dead daemons.
const CLEANUP_TIMEOUT: Duration = Duration::from_millis(200);
/// Daemons queried concurrently.
const MAX_CONCURRENT_QUERIES: usize = 64;

/// A mount according to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// The device number of the file system, unique among live ones.
    pub dev: Dev,
    /// The user who mounted it; only this user's daemons are trusted to serve it.
    pub owner: u32,
}

/// The result of a query.
#[derive(Debug)]
pub enum QueryResult<T> {
    /// No daemon that this user may query.
    NoDaemon,
    /// A daemon that does not reply.
    Silent(Option<Pid>, io::Error),
    /// A reply.
    Answer(Box<T>),
}

impl<T> QueryResult<T> {
    /// Returns the reply, if there is one.
    pub fn into_answer(self) -> Option<T> {
        match self {
            Self::Answer(reply) => Some(*reply),
            Self::NoDaemon | Self::Silent(..) => None,
        }
    }
}

/// A request to a daemon, with the deadline of its reply.
type Question<T> = fn(&Peer<'_>, Instant) -> io::Result<T>;

/// Asks the daemons of all these mounts which mount they serve, for two seconds in total. The replies are in the order of the
/// mounts. Removes sockets of dead daemons.
pub fn query_all(mounts: &[Mount]) -> Vec<QueryResult<Hello>> {
    query_all_in(&directories(mounts), mounts, true, hello)
}

/// Asks the daemons of all these mounts for their statistics, like [`query_all`].
pub fn query_all_stats(mounts: &[Mount]) -> Vec<QueryResult<Stat>> {
    query_all_in(&directories(mounts), mounts, true, stat)
}

/// Does what [`query_all`] does and removes nothing. Also returns the paths of sockets whose daemons died.
pub fn inspect_all(mounts: &[Mount]) -> (Vec<QueryResult<Hello>>, Vec<PathBuf>) {
    let dirs = directories(mounts);
    (query_all_in(&dirs, mounts, false, hello), stale_sockets(&dirs))
}

/// Does what [`query_all_stats`] does and removes nothing.
pub fn inspect_all_stats(mounts: &[Mount]) -> Vec<QueryResult<Stat>> {
    query_all_in(&directories(mounts), mounts, false, stat)
}

fn hello(peer: &Peer<'_>, deadline: Instant) -> io::Result<Hello> {
    peer.hello(deadline)
}

fn stat(peer: &Peer<'_>, deadline: Instant) -> io::Result<Stat> {
    peer.stat_until(deadline)
}

/// Returns the directories of sockets of the mounts' owners and of this user.
fn directories(mounts: &[Mount]) -> BTreeMap<u32, Vec<SocketDir>> {
    let owners: BTreeSet<u32> = mounts.iter().map(|mount| mount.owner).chain([geteuid().as_raw()]).collect();
    owners.into_iter().map(|owner| (owner, SocketDir::of(owner))).collect()
}

/// Returns the paths of sockets on which no process listens.
fn stale_sockets(dirs: &BTreeMap<u32, Vec<SocketDir>>) -> Vec<PathBuf> {
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let mut stale = Vec::new();
    for dir in dirs.values().flatten() {
        for name in dir.names() {
            if let ConnectOutcome::Dead = Peer::connect(dir, name.clone(), deadline) {
                stale.push(dir.path.join(name.as_str()));
            }
        }
    }
    stale
}

/// Implements [`query_all`], in these directories by owner. With `cleanup`, sockets of dead daemons are removed.
fn query_all_in<T: Send>(
    dirs: &BTreeMap<u32, Vec<SocketDir>>,
    mounts: &[Mount],
    cleanup: bool,
    question: Question<T>,
) -> Vec<QueryResult<T>> {
    let deadline = Instant::now() + TOTAL_TIMEOUT;
    let sockets = sockets(dirs, mounts, cleanup);
    let next = AtomicUsize::new(0);
    let answers: Vec<_> = mounts.iter().map(|_| Mutex::new(QueryResult::NoDaemon)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(mount), Some(slot)) = (mounts.get(at), answers.get(at)) else { return };
            let answer = query(sockets.get(mount).map_or(&[], Vec::as_slice), deadline, question);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        }
    };
    thread::scope(|scope| {
        for _ in 1..mounts.len().min(MAX_CONCURRENT_QUERIES) {
            // With fewer threads it only takes longer.
            let _ = thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work);
        }
        work();
    });
    answers.into_iter().map(|answer| answer.into_inner().unwrap_or(QueryResult::NoDaemon)).collect()
}

type Sockets<'a> = HashMap<Mount, Vec<(&'a SocketDir, SocketName)>>;

/// The sockets of each mount, found by device number. The mount id, which is in the name too, is not known without resolving the
/// mount's path, through directories of others whose daemons may not reply. With `cleanup`, sockets of dead daemons are removed.
fn sockets<'a>(dirs: &'a BTreeMap<u32, Vec<SocketDir>>, mounts: &[Mount], cleanup: bool) -> Sockets<'a> {
    let by_device: HashMap<(u32, String), Mount> =
        mounts.iter().map(|mount| ((mount.owner, mount.dev.to_string()), *mount)).collect();
    let tidy_until = Instant::now() + CLEANUP_TIMEOUT;
    let mut sockets = Sockets::new();
    for dir in dirs.values().flatten() {
        for name in dir.names() {
            match by_device.get(&(dir.owner, name.device().to_owned())) {
                Some(mount) => sockets.entry(*mount).or_default().push((dir, name)),
                // The mount is not visible here, or its daemon died without a successor: then it was unmounted.
                None if cleanup && dir.owner == geteuid().as_raw() => {
                    if let ConnectOutcome::Dead = Peer::connect(dir, name.clone(), tidy_until) {
                        dir.remove(name.as_str());
                    }
                }
                None => {}
            }
        }
    }
    sockets
}

/// Queries the first live daemon; another mount may have had the device number before.
fn query<T>(
    sockets: &[(&SocketDir, SocketName)],
    deadline: Instant,
    question: Question<T>,
) -> QueryResult<T> {
    let mut answer = QueryResult::NoDaemon;
    for (dir, name) in sockets {
        let until = deadline.min(Instant::now() + REPLY_TIMEOUT);
        match Peer::connect(dir, name.clone(), until) {
            ConnectOutcome::Alive(peer) => match question(&peer, until) {
                Ok(reply) => return QueryResult::Answer(Box::new(reply)),
                Err(error) => answer = QueryResult::Silent(peer.pid, error),
            },
            ConnectOutcome::Dead => {}
            ConnectOutcome::Silent(error) => answer = QueryResult::Silent(None, error),
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::super::client::tests::{Fixed, deaf, name};
    use super::super::server::serve_in;
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    fn dirs(path: &std::path::Path) -> BTreeMap<u32, Vec<SocketDir>> {
        let dir = SocketDir::of_test(path);
        BTreeMap::from([(dir.owner, vec![dir])])
    }

    fn mount(minor: u32, owner: u32) -> Mount {
        Mount { dev: Dev { major: 0, minor }, owner }
    }

    #[test]
    fn the_living_are_heard_among_the_deaf() {
        let temp = tempfile::tempdir().unwrap();
        let me = geteuid().as_raw();
        let dir = SocketDir::of_test(temp.path());
        let _control = serve_in(dir, name("0:1000-7.sock"), Arc::new(Fixed)).unwrap();
        // An older socket with the same device number, and many mounts whose daemons accept no connection.
        let _deaf: Vec<_> = std::iter::once("0:1000-1.sock".to_owned())
            .chain((0..100).map(|minor| format!("0:{minor}-1.sock")))
            .map(|name| deaf(&temp.path().join(name)))
            .collect();
        let mut mounts = vec![mount(1000, me), mount(1001, me), mount(1000, me + 1)];
        mounts.extend((0..100).map(|minor| mount(minor, me)));
        let begun = Instant::now();
        let answers = query_all_in(&dirs(temp.path()), &mounts, true, hello);
        assert!(begun.elapsed() < TOTAL_TIMEOUT + REPLY_TIMEOUT, "{:?}", begun.elapsed());
        assert!(matches!(&answers[0], QueryResult::Answer(hello) if hello.entry.mountpoint == "/m"));
        assert!(matches!(answers[1], QueryResult::NoDaemon));
        // The socket belongs to another user than the mount.
        assert!(matches!(answers[2], QueryResult::NoDaemon));
        assert!(answers[3..].iter().all(|answer| matches!(answer, QueryResult::Silent(..))));
    }

    #[test]
    fn sockets_of_the_dead_are_cleared_away() {
        let temp = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(temp.path().join("0:1-4.sock")).unwrap());
        std::fs::write(temp.path().join("note.txt"), "not ours").unwrap();
        let stale = temp.path().join("0:1-4.sock");
        assert_eq!(stale_sockets(&dirs(temp.path())), [stale.as_path()]);
        assert!(query_all_in(&dirs(temp.path()), &[], false, hello).is_empty() && stale.exists());
        assert!(query_all_in(&dirs(temp.path()), &[], true, hello).is_empty());
        assert!(!temp.path().join("0:1-4.sock").exists());
        assert!(temp.path().join("note.txt").exists());
    }
}
