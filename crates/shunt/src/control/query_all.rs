//! Asking the daemons of many mounts at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, geteuid};
use shunt_fuse::mount::Dev;

use super::client::{Knock, Peer};
use super::dir::{SocketDir, SocketName};
use super::proto::Hello;

/// All answers are there by then, or they do not count.
const TOTAL: Duration = Duration::from_secs(2);
/// A single daemon gets this long.
const EACH: Duration = Duration::from_secs(1);
/// For clearing away the sockets of the dead.
const TIDYING: Duration = Duration::from_millis(200);
/// Daemons asked at a time.
const AT_ONCE: usize = 64;

/// A mount, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mount {
    /// Of the file system: no two live ones share it.
    pub dev: Dev,
    /// The user who mounted it, whose daemon alone is believed.
    pub owner: u32,
}

/// What came of asking.
#[derive(Debug)]
pub enum Answer {
    /// No daemon that this user may ask.
    Nobody,
    /// A daemon that does not answer.
    Silent(Option<Pid>, io::Error),
    /// An answer.
    Hello(Box<Hello>),
}

/// Asks the daemons of all these mounts, for two seconds in all. The answers are in the order of the mounts.
pub fn survey(mounts: &[Mount]) -> Vec<Answer> {
    let owners: BTreeSet<u32> = mounts.iter().map(|mount| mount.owner).chain([geteuid().as_raw()]).collect();
    survey_in(&owners.into_iter().map(|owner| (owner, SocketDir::of(owner))).collect(), mounts)
}

/// As [`survey`], in these directories by owner.
fn survey_in(dirs: &BTreeMap<u32, Vec<SocketDir>>, mounts: &[Mount]) -> Vec<Answer> {
    let deadline = Instant::now() + TOTAL;
    let sockets = sockets(dirs, mounts);
    let next = AtomicUsize::new(0);
    let answers: Vec<_> = mounts.iter().map(|_| Mutex::new(Answer::Nobody)).collect();
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let (Some(mount), Some(place)) = (mounts.get(at), answers.get(at)) else { return };
            let answer = ask(sockets.get(mount).map_or(&[], Vec::as_slice), deadline);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = answer;
        }
    };
    thread::scope(|scope| {
        for _ in 1..mounts.len().min(AT_ONCE) {
            // Fewer threads only take longer.
            let _ = thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work);
        }
        work();
    });
    answers.into_iter().map(|answer| answer.into_inner().unwrap_or(Answer::Nobody)).collect()
}

type Sockets<'a> = HashMap<Mount, Vec<(&'a SocketDir, SocketName)>>;

/// The sockets of each mount. By device number: the id of the mount, which is in the name too, cannot be had without
/// walking to it, through directories of others who may never answer. Those of the dead are cleared away.
fn sockets<'a>(dirs: &'a BTreeMap<u32, Vec<SocketDir>>, mounts: &[Mount]) -> Sockets<'a> {
    let by_device: HashMap<(u32, String), Mount> =
        mounts.iter().map(|mount| ((mount.owner, mount.dev.to_string()), *mount)).collect();
    let tidy_until = Instant::now() + TIDYING;
    let mut sockets = Sockets::new();
    for dir in dirs.values().flatten() {
        for name in dir.names() {
            match by_device.get(&(dir.owner, name.device().to_owned())) {
                Some(mount) => sockets.entry(*mount).or_default().push((dir, name)),
                // Of a mount that is out of sight, or of a daemon that died and that nobody follows: its mount is gone.
                None if dir.owner == geteuid().as_raw() => {
                    if let Knock::Dead = Peer::knock(dir, name.clone(), tidy_until) {
                        dir.remove(name.as_str());
                    }
                }
                None => {}
            }
        }
    }
    sockets
}

/// The first that is alive; another may have had the device number before.
fn ask(sockets: &[(&SocketDir, SocketName)], deadline: Instant) -> Answer {
    let mut answer = Answer::Nobody;
    for (dir, name) in sockets {
        let until = deadline.min(Instant::now() + EACH);
        match Peer::knock(dir, name.clone(), until) {
            Knock::There(peer) => match peer.hello(until) {
                Ok(hello) => return Answer::Hello(Box::new(hello)),
                Err(error) => answer = Answer::Silent(peer.pid, error),
            },
            Knock::Dead => {}
            Knock::Silent(error) => answer = Answer::Silent(None, error),
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
        // An older socket with the same device number, and many mounts whose daemons take no calls.
        let _deaf: Vec<_> = std::iter::once("0:1000-1.sock".to_owned())
            .chain((0..100).map(|minor| format!("0:{minor}-1.sock")))
            .map(|name| deaf(&temp.path().join(name)))
            .collect();
        let mut mounts = vec![mount(1000, me), mount(1001, me), mount(1000, me + 1)];
        mounts.extend((0..100).map(|minor| mount(minor, me)));
        let begun = Instant::now();
        let answers = survey_in(&dirs(temp.path()), &mounts);
        assert!(begun.elapsed() < TOTAL + EACH, "{:?}", begun.elapsed());
        assert!(matches!(&answers[0], Answer::Hello(hello) if hello.entry.mountpoint == "/m"));
        assert!(matches!(answers[1], Answer::Nobody));
        // The socket is of another user than the mount.
        assert!(matches!(answers[2], Answer::Nobody));
        assert!(answers[3..].iter().all(|answer| matches!(answer, Answer::Silent(..))));
    }

    #[test]
    fn sockets_of_the_dead_are_cleared_away() {
        let temp = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(temp.path().join("0:1-4.sock")).unwrap());
        std::fs::write(temp.path().join("note.txt"), "not ours").unwrap();
        assert!(survey_in(&dirs(temp.path()), &[]).is_empty());
        assert!(!temp.path().join("0:1-4.sock").exists());
        assert!(temp.path().join("note.txt").exists());
    }
}
