//! Proxy between a machine and a server: delay, loss, silence.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use shunt_tests::Rng;

use crate::volume_soak::netns::Netns;

/// Bytes forwarded at once.
const SEGMENT_BYTES: usize = 16 << 10;
/// Time after which a lost piece is retransmitted.
const RETRANSMIT_TIMEOUT: Duration = Duration::from_millis(250);

/// State of a line.
#[derive(Default)]
pub struct LinkFaults {
    /// Delay of each piece in milliseconds.
    pub delay: AtomicU64,
    /// Pieces of a thousand that are lost once; a tenth as many end their connection.
    pub loss: AtomicU64,
    /// Nothing is forwarded, and no connection ends.
    pub silent: AtomicBool,
}

impl LinkFaults {
    pub fn be_fair(&self) {
        self.delay.store(0, Ordering::Relaxed);
        self.loss.store(0, Ordering::Relaxed);
        self.silent.store(false, Ordering::Relaxed);
    }

    /// Returns false if the connection ends.
    fn lets_through(&self, rng: &mut Rng) -> bool {
        while self.silent.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        let (delay, loss) = (self.delay.load(Ordering::Relaxed), self.loss.load(Ordering::Relaxed) as usize);
        thread::sleep(Duration::from_millis(delay));
        if rng.below(1000) < loss {
            thread::sleep(RETRANSMIT_TIMEOUT);
        }
        rng.below(10_000) >= loss
    }
}

/// Forwards connections from an address in one namespace to an address in another, until this process ends.
pub fn pass(from: (&Netns, SocketAddr), to: (&Netns, SocketAddr), link_faults: &Arc<LinkFaults>) {
    let (at, server) = (from.1, to.1);
    let listener = from.0.within(|| TcpListener::bind(at)).expect("a port");
    let link_faults = link_faults.clone();
    let (ready, is_there) = std::sync::mpsc::channel();
    let net = to.0;
    thread::scope(|scope| {
        // The thread outlives the scope, which waits only until it has entered the other namespace.
        scope.spawn(move || {
            net.enter();
            thread::spawn(move || {
                ready.send(()).expect("somebody waits");
                for (n, client) in listener.incoming().flatten().enumerate() {
                    let link_faults = link_faults.clone();
                    thread::spawn(move || connect(client, server, &link_faults, n as u64));
                }
            });
        });
    });
    is_there.recv().expect("a thread");
}

fn connect(client: TcpStream, server: SocketAddr, link_faults: &Arc<LinkFaults>, n: u64) {
    let Ok(server) = TcpStream::connect_timeout(&server, Duration::from_secs(5)) else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (Ok(other_client), Ok(other_server)) = (client.try_clone(), server.try_clone()) else { return };
    for (from, to) in [(client, server), (other_server, other_client)] {
        let (link_faults, mut rng) = (link_faults.clone(), Rng::new(n));
        thread::spawn(move || copy(from, to, &link_faults, &mut rng));
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, link_faults: &LinkFaults, rng: &mut Rng) {
    let mut piece = vec![0; SEGMENT_BYTES];
    while let Ok(len @ 1..) = from.read(&mut piece) {
        if !link_faults.lets_through(rng) || to.write_all(&piece[..len]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
