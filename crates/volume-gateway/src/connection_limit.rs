//! Limits on what unauthenticated clients can consume of a gateway: pending connections, and enrollment attempts.
//!
//! Anybody can connect, and a client is identified only after TLS and the handshake. Until then a connection takes one of a
//! limited number of slots, few of them for one address; connections of known nodes have their own limits.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Maximum number of pending connections.
const MAX_PENDING_CONNECTIONS: usize = 1024;

/// Maximum number of pending connections of one address: nodes behind one address may reconnect together after an outage.
const MAX_PENDING_OF_ADDRESS: usize = 64;

/// Maximum number of refused enrollment attempts of one address within [`ENROLLMENT_INTERVAL`].
const MAX_REFUSED_ENROLLMENTS: u32 = 8;
const ENROLLMENT_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of addresses whose attempts are recorded.
const MAX_REMEMBERED_ADDRESSES: usize = 4096;

/// The unit of limits: an IPv4 address, or an IPv6 /64 network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => Self(IpAddr::V6((u128::from(address) >> 64 << 64).into())),
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Refused enrollment attempts of an address.
#[derive(Debug)]
struct RefusedAttempts {
    since: Instant,
    refused: u32,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<Origin, usize>,
    count: usize,
    refused: HashMap<Origin, RefusedAttempts>,
}

/// Pending connections, and refused enrollment attempts.
#[derive(Debug, Default)]
pub(super) struct ConnectionLimiter(Mutex<State>);

/// The slot of a pending connection, released on drop.
#[derive(Debug)]
pub(super) struct PendingConnection {
    limiter: Arc<ConnectionLimiter>,
    origin: Origin,
}

impl ConnectionLimiter {
    /// Takes a slot; `None`: the limit of the address or the total is reached.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<PendingConnection> {
        let origin = Origin::from(address);
        let mut state = self.0.lock();
        let of_origin = state.pending.get(&origin).copied().unwrap_or_default();
        if state.count >= MAX_PENDING_CONNECTIONS || of_origin >= MAX_PENDING_OF_ADDRESS {
            return None;
        }
        state.count += 1;
        *state.pending.entry(origin).or_default() += 1;
        Some(PendingConnection { limiter: self.clone(), origin })
    }

    /// Reports whether an address may attempt to enrol.
    pub(super) fn may_enrol(&self, address: IpAddr, now: Instant) -> bool {
        let state = self.0.lock();
        state.refused.get(&Origin::from(address)).is_none_or(|tries| {
            tries.refused < MAX_REFUSED_ENROLLMENTS || now.duration_since(tries.since) >= ENROLLMENT_INTERVAL
        })
    }

    /// Records a refused attempt.
    pub(super) fn refused(&self, address: IpAddr, now: Instant) {
        let mut state = self.0.lock();
        if state.refused.len() >= MAX_REMEMBERED_ADDRESSES {
            state.refused.retain(|_, tries| now.duration_since(tries.since) < ENROLLMENT_INTERVAL);
            if state.refused.len() >= MAX_REMEMBERED_ADDRESSES {
                // A flood from many addresses: individual records have no value.
                state.refused.clear();
            }
        }
        let tries =
            state.refused.entry(Origin::from(address)).or_insert(RefusedAttempts { since: now, refused: 0 });
        if now.duration_since(tries.since) >= ENROLLMENT_INTERVAL {
            *tries = RefusedAttempts { since: now, refused: 0 };
        }
        tries.refused += 1;
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        let mut state = self.limiter.0.lock();
        state.count -= 1;
        if let Some(count) = state.pending.get_mut(&self.origin) {
            *count -= 1;
            if *count == 0 {
                state.pending.remove(&self.origin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_address_takes_few_places() {
        let door = Arc::<ConnectionLimiter>::default();
        let mut held: Vec<PendingConnection> =
            (0..MAX_PENDING_OF_ADDRESS).map_while(|_| door.admit(address("10.0.0.1"))).collect();
        assert_eq!(held.len(), MAX_PENDING_OF_ADDRESS);
        assert!(
            door.admit(address("10.0.0.1")).is_none() && door.admit(address("::ffff:10.0.0.1")).is_none()
        );
        assert!(door.admit(address("10.0.0.2")).is_some());
        held.pop();
        assert!(door.admit(address("10.0.0.1")).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let door = Arc::<ConnectionLimiter>::default();
        let own = |n: usize| address(&format!("2001:db8:1:2::{n:x}"));
        let held: Vec<PendingConnection> =
            (0..MAX_PENDING_OF_ADDRESS).map_while(|n| door.admit(own(n))).collect();
        assert_eq!(held.len(), MAX_PENDING_OF_ADDRESS);
        assert!(door.admit(own(9999)).is_none());
        assert!(door.admit(address("2001:db8:1:3::1")).is_some());
    }

    #[test]
    fn all_together_have_a_bound() {
        let door = Arc::<ConnectionLimiter>::default();
        let many = (0..2 * MAX_PENDING_CONNECTIONS)
            .filter_map(|n| door.admit(address(&format!("10.{}.{}.1", n >> 8, n & 255))));
        let held: Vec<PendingConnection> = many.collect();
        assert_eq!(held.len(), MAX_PENDING_CONNECTIONS);
        drop(held);
        assert_eq!(door.0.lock().count, 0);
        assert!(door.0.lock().pending.is_empty());
    }

    #[test]
    fn tries_are_counted_for_a_while() {
        let (door, now) = (ConnectionLimiter::default(), Instant::now());
        let who = address("10.0.0.1");
        for _ in 0..MAX_REFUSED_ENROLLMENTS {
            assert!(door.may_enrol(who, now));
            door.refused(who, now);
        }
        assert!(!door.may_enrol(who, now) && door.may_enrol(address("10.0.0.2"), now));
        assert!(door.may_enrol(who, now + ENROLLMENT_INTERVAL));
        door.refused(who, now + ENROLLMENT_INTERVAL);
        assert!(door.may_enrol(who, now + ENROLLMENT_INTERVAL));
        for n in 0..2 * MAX_REMEMBERED_ADDRESSES {
            door.refused(address(&format!("10.{}.{}.1", n >> 8, n & 255)), now);
        }
        assert!(door.0.lock().refused.len() <= MAX_REMEMBERED_ADDRESSES);
    }
}
