use std::fmt;

use crate::{Instant, Key, Slab};

/// Deadlines in an indexed binary heap.
///
/// Insertion and removal take O(log n); a removed deadline is gone at once, so that a million calls which ended early leave nothing
/// behind. After warm-up nothing allocates.
///
/// ```
/// use fulmar_base::{DeadlineHeap, Instant};
///
/// let mut deadlines = DeadlineHeap::new();
/// let call = deadlines.insert(Instant::from_nanos(50), "call");
/// deadlines.insert(Instant::from_nanos(70), "idle");
/// assert_eq!(deadlines.next(), Some(Instant::from_nanos(50)));
/// assert_eq!(deadlines.remove(call), Some("call"));
/// assert_eq!(deadlines.pop_expired(Instant::from_nanos(60)), None);
/// assert_eq!(deadlines.pop_expired(Instant::from_nanos(70)), Some("idle"));
/// ```
pub struct DeadlineHeap<V> {
    /// A binary heap: the parent of the node at `n` lies at `(n - 1) / 2` and is not later.
    nodes: Vec<Node>,
    /// Where each deadline lies in `nodes`, and its value.
    entries: Slab<Entry<V>>,
}

#[derive(Copy, Clone)]
struct Node {
    at: Instant,
    /// The key of the entry, as a number: as in [`DeadlineKey`], which knows no type of value.
    key: u64,
}

struct Entry<V> {
    position: usize,
    value: V,
}

/// Names a deadline in a [`DeadlineHeap`]. Once it was removed or has expired, the key gets `None`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DeadlineKey(u64);

impl<V: Copy> DeadlineHeap<V> {
    /// No deadlines, and no memory.
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), entries: Slab::new() }
    }

    /// Adds a deadline.
    pub fn insert(&mut self, at: Instant, value: V) -> DeadlineKey {
        let position = self.nodes.len();
        let key = self.entries.insert(Entry { position, value }).to_u64();
        self.nodes.push(Node { at, key });
        self.sift_up(position);
        DeadlineKey(key)
    }

    /// Removes a deadline before its time and returns its value; `None` if it is not there any more.
    pub fn remove(&mut self, key: DeadlineKey) -> Option<V> {
        let entry = self.entries.remove(Key::from_u64(key.0))?;
        self.nodes.swap_remove(entry.position);
        if entry.position < self.nodes.len() {
            // The node that was last may belong above or below its place.
            let position = self.sift_up(entry.position);
            self.sift_down(position);
        }
        Some(entry.value)
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Instant> {
        self.nodes.first().map(|node| node.at)
    }

    /// Removes the earliest deadline and returns its value, if its time has come: `now` is not before it.
    pub fn pop_expired(&mut self, now: Instant) -> Option<V> {
        let first = self.nodes.first().filter(|node| node.at <= now)?;
        self.remove(DeadlineKey(first.key))
    }

    /// How many deadlines there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no deadlines.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Gives the memory back if there are no deadlines. Keys that were stale stay so.
    pub fn shrink(&mut self) {
        if self.nodes.is_empty() {
            self.nodes = Vec::new();
            self.entries.shrink();
        }
    }

    /// Bytes of memory held, used or not.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.entries.memory_bytes()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to while there are never more than so many deadlines at once.
    pub const fn memory_bytes_max(deadlines_max: usize) -> usize {
        let nodes = deadlines_max.saturating_mul(2);
        let nodes = (if nodes < 4 { 4 } else { nodes }).saturating_mul(size_of::<Node>());
        nodes.saturating_add(Slab::<Entry<V>>::memory_bytes_max(deadlines_max))
    }

    /// Moves a node up to where its parent is not later, and returns where that is.
    fn sift_up(&mut self, mut position: usize) -> usize {
        let node = self.nodes[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.nodes[parent].at <= node.at {
                break;
            }
            self.place(position, self.nodes[parent]);
            position = parent;
        }
        self.place(position, node);
        position
    }

    /// Moves a node down to where no child is earlier.
    fn sift_down(&mut self, mut position: usize) {
        let node = self.nodes[position];
        loop {
            let (left, right) = (2 * position + 1, 2 * position + 2);
            let Some(&(mut earlier)) = self.nodes.get(left) else { break };
            let mut child = left;
            if let Some(&other) = self.nodes.get(right)
                && other.at < earlier.at
            {
                (child, earlier) = (right, other);
            }
            if node.at <= earlier.at {
                break;
            }
            self.place(position, earlier);
            position = child;
        }
        self.place(position, node);
    }

    fn place(&mut self, position: usize, node: Node) {
        self.nodes[position] = node;
        if let Some(entry) = self.entries.get_mut(Key::from_u64(node.key)) {
            entry.position = position;
        }
    }
}

impl<V: Copy> Default for DeadlineHeap<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> fmt::Debug for DeadlineHeap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineHeap")
            .field("len", &self.nodes.len())
            .field("next", &self.nodes.first().map(|node| node.at))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::testing::Random;

    #[test]
    fn agrees_with_a_tree_map() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let mut deadlines = DeadlineHeap::new();
            // Instants are made unique, so that the order of expiry is.
            let (mut model, mut keys) = (BTreeMap::new(), Vec::new());
            for id in 0..2000usize {
                match random.below(4) {
                    0 | 1 => {
                        let at = Instant::from_nanos((random.below(1_000_000) * 10_000 + id) as u64);
                        keys.push((at, deadlines.insert(at, id)));
                        model.insert(at, id);
                    }
                    2 if !keys.is_empty() => {
                        let (at, key) = keys[random.below(keys.len())];
                        assert_eq!(deadlines.remove(key), model.remove(&at), "seed {seed}");
                    }
                    _ => {
                        let now = Instant::from_nanos((random.below(100_000) * 10_000) as u64);
                        let expired =
                            model.first_key_value().filter(|(at, _)| **at <= now).map(|(at, _)| *at);
                        assert_eq!(deadlines.pop_expired(now), expired.and_then(|at| model.remove(&at)));
                    }
                }
                assert_eq!(deadlines.next(), model.keys().next().copied(), "seed {seed}");
                assert_eq!((deadlines.len(), deadlines.is_empty()), (model.len(), model.is_empty()));
            }
            let late = Instant::from_nanos(u64::MAX);
            let rest: Vec<_> = std::iter::from_fn(|| deadlines.pop_expired(late)).collect();
            assert_eq!(rest, model.into_values().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_deadline_expires_at_its_instant_and_not_before() {
        let mut deadlines = DeadlineHeap::new();
        deadlines.insert(Instant::from_nanos(10), ());
        assert_eq!(deadlines.pop_expired(Instant::from_nanos(9)), None);
        assert_eq!(deadlines.pop_expired(Instant::from_nanos(10)), Some(()));
        assert_eq!(deadlines.pop_expired(Instant::from_nanos(10)), None);
    }

    #[test]
    fn a_key_is_stale_once_its_deadline_is_gone() {
        let mut deadlines = DeadlineHeap::new();
        let expired = deadlines.insert(Instant::ZERO, 1);
        deadlines.pop_expired(Instant::ZERO);
        let other = deadlines.insert(Instant::ZERO, 2);
        assert_eq!(deadlines.remove(expired), None);
        assert_eq!(deadlines.remove(other), Some(2));
        assert_eq!(deadlines.remove(other), None);
    }

    #[test]
    fn steady_use_holds_no_more_memory() {
        let mut deadlines = DeadlineHeap::new();
        let mut keys: Vec<_> = (0..100).map(|n| deadlines.insert(Instant::from_nanos(n), n)).collect();
        let held = (deadlines.nodes.capacity(), deadlines.entries.capacity());
        for n in 0..10_000u64 {
            deadlines.remove(keys.swap_remove((n * 7 % 100) as usize));
            keys.push(deadlines.insert(Instant::from_nanos(n * 31 % 1000), n));
        }
        assert_eq!((deadlines.nodes.capacity(), deadlines.entries.capacity()), held);
    }

    #[test]
    fn a_heap_gives_its_memory_back_when_it_is_empty() {
        let mut heap = DeadlineHeap::new();
        let keys: Vec<_> = (0..50).map(|n| heap.insert(Instant::from_nanos(n), n)).collect();
        assert!(heap.memory_bytes() <= DeadlineHeap::<u64>::memory_bytes_max(50));
        heap.shrink();
        assert_eq!(heap.len(), 50);
        keys.iter().for_each(|&key| assert!(heap.remove(key).is_some()));
        heap.shrink();
        assert_eq!(heap.memory_bytes(), 0);
        heap.insert(Instant::ZERO, 7);
        assert!(keys.iter().all(|&stale| heap.remove(stale).is_none()));
    }
}
