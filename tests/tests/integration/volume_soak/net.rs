//! Network namespaces, and the links between them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use shunt_tests::run;

/// A network namespace. One of our own is gone with the last process that is in it, however that ends.
pub struct Net(OwnedFd);

impl Net {
    /// A new one, in which only `lo` is.
    pub fn new() -> Self {
        let net = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                // SAFETY: nothing that this thread shares by memory is unshared.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.expect("a network namespace: needs root");
                Self::here()
            });
            made.join().expect("a network namespace")
        });
        net.ip(&["link", "set", "lo", "up"]);
        net
    }

    /// That of this thread.
    pub fn here() -> Self {
        Self(File::open("/proc/thread-self/ns/net").expect("a network namespace").into())
    }

    /// Has this thread, and what it starts, be in it from now on.
    pub fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).expect("setns");
    }

    /// Does the work in it: sockets made there, and programs started there, stay there.
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

    /// Where other programs find it.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// How the network of a machine is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// What it sends and what is sent to it is dropped, and nobody is told.
    Drops,
    /// Its link has no carrier and no address.
    Down,
}

/// A machine with one link, to the hub.
pub struct Machine {
    net: Net,
    number: u8,
}

impl Machine {
    pub fn new(hub: &Net, number: u8) -> Self {
        let net = Net::new();
        let port = format!("port{number}");
        hub.ip(&["link", "add", &port, "type", "veth", "peer", "name", "line", "netns", &net.path()]);
        let machine = Self { net, number };
        hub.ip(&["address", "add", &format!("{}/24", machine.hub_address()), "dev", &port]);
        hub.ip(&["link", "set", &port, "up"]);
        machine.net.ip(&["address", "add", &format!("{}/24", machine.address()), "dev", "line"]);
        machine.net.ip(&["link", "set", "line", "up"]);
        machine
    }

    pub fn net(&self) -> &Net {
        &self.net
    }

    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, self.number, 2)
    }

    /// What it reaches others by.
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
