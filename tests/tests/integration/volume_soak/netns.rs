//! Network namespaces, and the links between them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use shunt_test_support::run;

/// A network namespace. One created by the test ends with its last process.
pub struct Netns(OwnedFd);

impl Netns {
    /// Creates a namespace that contains only `lo`.
    pub fn new() -> Self {
        let net = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                // SAFETY: the unshare affects no state that this thread shares in memory.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace: needs root");
                Self::here()
            });
            made.join().expect("a network namespace")
        });
        net.ip(&["link", "set", "lo", "up"]);
        net
    }

    /// Returns the namespace of this thread.
    pub fn here() -> Self {
        Self(File::open("/proc/thread-self/ns/net").expect("a network namespace").into())
    }

    /// Moves this thread, and the processes it starts, into the namespace.
    pub fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }

    /// Runs the work in the namespace: sockets created there, and programs started there, stay there.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                self.enter();
                work()
            });
            done.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    #[track_caller]
    fn tool(&self, program: &str, words: &[&str]) {
        self.within(|| run(Command::new(program).args(words))).ok();
    }

    #[track_caller]
    fn ip(&self, words: &[&str]) {
        self.tool("ip", words);
    }

    /// Returns a path by which other programs can open it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// How a machine is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Packets in both directions are dropped silently.
    Drops,
    /// The link has no carrier and no address.
    Down,
}

/// A machine with one link to the hub.
pub struct Machine {
    net: Netns,
    number: u8,
}

impl Machine {
    pub fn new(hub: &Netns, number: u8) -> Self {
        let net = Netns::new();
        let port = format!("port{number}");
        hub.ip(&["link", "add", &port, "type", "veth", "peer", "name", "line", "netns", &net.path()]);
        let machine = Self { net, number };
        hub.ip(&["address", "add", &format!("{}/24", machine.hub_address()), "dev", &port]);
        hub.ip(&["link", "set", &port, "up"]);
        machine.net.ip(&["address", "add", &format!("{}/24", machine.address()), "dev", "line"]);
        machine.net.ip(&["link", "set", "line", "up"]);
        machine
    }

    pub fn net(&self) -> &Netns {
        &self.net
    }

    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.number, 2)
    }

    /// Returns the hub's address on its link.
    pub fn hub_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.number, 1)
    }

    pub fn cut(&self, how: Cut) {
        match how {
            Cut::Drops => self.net.tool(
                "nft",
                &["add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }; \
                   add chain inet cut out { type filter hook output priority 0; policy drop; }"],
            ),
            Cut::Down => self.net.ip(&["link", "set", "line", "down"]),
        }
    }

    pub fn mend(&self, how: Cut) {
        match how {
            Cut::Drops => self.net.tool("nft", &["delete table inet cut"]),
            Cut::Down => self.net.ip(&["link", "set", "line", "up"]),
        }
    }
}
