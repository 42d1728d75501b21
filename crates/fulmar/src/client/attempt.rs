//! One attempt to connect: to all addresses of a name, one after the other and side by side (gRFC A61, RFC 8305).

use std::collections::VecDeque;
use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::Status;
use fulmar_reactor::{Address, ConnectionKey};

/// How long an address has a head start before the next one is tried beside it (RFC 8305 §5 "Connection Attempt Delay").
const HEAD_START: Duration = Duration::from_millis(250);

/// How many addresses are tried at the same time. A list of many that are all dead must not take all descriptors there are.
const DIALS_MAX: usize = 8;

/// An attempt that goes on. It succeeds with the first address whose server sends its SETTINGS, and fails with the last that does not.
pub(super) struct Attempt {
    /// When it is given up.
    pub(super) until: Instant,
    /// The name is being resolved.
    pub(super) is_resolving: bool,
    /// Addresses that have not been tried.
    addresses: VecDeque<Address>,
    /// Connections that are being made.
    dials: Vec<ConnectionKey>,
    /// When the next address is tried, if none of those before it has come to anything.
    next_at: Option<Instant>,
    /// What went wrong last.
    pub(super) last_error: Option<Status>,
}

impl Attempt {
    pub(super) fn new(until: Instant) -> Self {
        Self {
            until,
            is_resolving: false,
            addresses: VecDeque::new(),
            dials: Vec::new(),
            next_at: None,
            last_error: None,
        }
    }

    /// The addresses of the name, best first.
    pub(super) fn resolved(&mut self, addresses: Vec<Address>) {
        self.is_resolving = false;
        self.addresses = interleaved(addresses);
    }

    /// The next address, if it is time to try it.
    pub(super) fn next_address(&mut self, now: Instant) -> Option<Address> {
        let has_head_start = self.next_at.is_some_and(|at| at > now);
        if now >= self.until || has_head_start || self.dials.len() >= DIALS_MAX {
            return None;
        }
        self.addresses.pop_front()
    }

    /// An address is being tried.
    pub(super) fn dialled(&mut self, key: ConnectionKey, now: Instant) {
        self.dials.push(key);
        self.next_at = Some(now + HEAD_START);
    }

    /// A connection has come to nothing; whether it was one of these. The next address need not wait for it any longer.
    pub(super) fn failed(&mut self, key: ConnectionKey) -> bool {
        let before = self.dials.len();
        self.dials.retain(|dial| *dial != key);
        let is_ours = self.dials.len() < before;
        if is_ours {
            self.next_at = None;
        }
        is_ours
    }

    /// Whether this is one of the connections that are being made.
    pub(super) fn has(&self, key: ConnectionKey) -> bool {
        self.dials.contains(&key)
    }

    /// Whether nothing is left to wait for.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        !self.is_resolving && self.dials.is_empty() && (self.addresses.is_empty() || now >= self.until)
    }

    /// When something is to be done, if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.is_resolving {
            return Some(self.until);
        }
        self.next_at.filter(|_| !self.addresses.is_empty() && self.dials.len() < DIALS_MAX)
    }

    /// The connections that are being made, to be ended.
    pub(super) fn into_dials(self) -> Vec<ConnectionKey> {
        self.dials
    }
}

/// The addresses with the families in turn, that of the first one first (RFC 8305 §4): a path that is broken for one family costs one
/// head start, and not one for each address.
pub(crate) fn interleaved(addresses: Vec<Address>) -> VecDeque<Address> {
    let is_v6 = |address: &Address| matches!(address, Address::Ip(address) if address.is_ipv6());
    let first_family = addresses.first().is_some_and(is_v6);
    let (mut first, mut other): (VecDeque<_>, VecDeque<_>) =
        addresses.into_iter().partition(|address| is_v6(address) == first_family);
    let mut mixed = VecDeque::with_capacity(first.len() + other.len());
    while let Some(address) = first.pop_front() {
        mixed.push_back(address);
        mixed.extend(other.pop_front());
    }
    mixed.append(&mut other);
    mixed
}

/// How long the next of so many addresses may take, where they are tried one after the other.
pub(crate) fn share_of(left: Duration, addresses: usize) -> Duration {
    left / u32::try_from(addresses.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn addresses(list: &[&str]) -> Vec<Address> {
        list.iter().map(|text| text.parse::<SocketAddr>().unwrap().into()).collect()
    }

    fn at(milliseconds: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(milliseconds)
    }

    fn key(number: u64) -> ConnectionKey {
        ConnectionKey::from_u64(number)
    }

    #[test]
    fn families_take_turns_and_the_first_one_begins() {
        let mixed = interleaved(addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1", "2.2.2.2:1"]));
        assert_eq!(mixed, addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
        let mixed = interleaved(addresses(&["1.1.1.1:1", "[::1]:1", "[::2]:1"]));
        assert_eq!(mixed, addresses(&["1.1.1.1:1", "[::1]:1", "[::2]:1"]));
        assert!(interleaved(Vec::new()).is_empty());
    }

    #[test]
    fn an_address_has_a_head_start_unless_it_fails() {
        let mut attempt = Attempt::new(at(20_000));
        attempt.resolved(addresses(&["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1"]));
        assert!(attempt.next_address(at(0)).is_some());
        attempt.dialled(key(1), at(0));
        assert_eq!(attempt.next_deadline(), Some(at(250)));
        assert_eq!(attempt.next_address(at(249)), None);
        assert!(attempt.next_address(at(250)).is_some(), "beside the first one");
        attempt.dialled(key(2), at(250));
        assert!(!attempt.failed(key(9)));
        assert_eq!(attempt.next_address(at(300)), None);
        assert!(attempt.failed(key(1)));
        assert!(attempt.next_address(at(300)).is_some(), "at once");
        attempt.dialled(key(3), at(300));
        assert_eq!(attempt.next_deadline(), None, "there is no other address");
        assert!(attempt.failed(key(3)) && !attempt.is_over(at(300)));
        assert!(attempt.failed(key(2)) && attempt.is_over(at(300)));
    }

    #[test]
    fn not_more_than_a_few_are_tried_at_a_time_and_none_when_the_time_is_over() {
        let mut attempt = Attempt::new(at(20_000));
        attempt.resolved(addresses(&["1.1.1.1:1"; 20]));
        for number in 0..DIALS_MAX as u64 {
            assert!(attempt.next_address(at(number * 1_000)).is_some());
            attempt.dialled(key(number), at(number * 1_000));
        }
        assert_eq!((attempt.next_address(at(19_000)), attempt.next_deadline()), (None, None));
        for number in 0..DIALS_MAX as u64 {
            assert!(!attempt.is_over(at(20_000)));
            attempt.failed(key(number));
            assert_eq!(attempt.next_address(at(20_000)), None);
        }
        assert!(attempt.is_over(at(20_000)));
    }
}
