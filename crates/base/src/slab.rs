use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Marks the end of the list of vacant slots.
const NONE: u32 = u32::MAX;

/// Values behind typed generational keys.
///
/// Slots are reused, the one freed last first, so that indices stay dense and memory stays warm. Each time a slot is freed its
/// generation changes, and a key of an earlier generation gets `None`: a stale key is an answer, never a panic and never somebody
/// else's value. (Generations wrap: a key would have to be kept while its slot is reused 2³² − 1 times.)
///
/// ```
/// use fulmar_base::Slab;
///
/// let mut slab = Slab::new();
/// let key = slab.insert("first");
/// assert_eq!(slab.remove(key), Some("first"));
/// let other = slab.insert("second");
/// assert_eq!(other.index(), key.index());
/// assert_eq!(slab.get(key), None);
/// ```
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The vacant slot to use next, or [`NONE`].
    vacant: u32,
    len: usize,
    /// What a new slot begins with: above all that slots given back have had.
    first_generation: u32,
}

struct Slot<T> {
    /// Never 0, so that no key is 0 as a number.
    generation: u32,
    content: Content<T>,
}

enum Content<T> {
    Occupied(T),
    /// The vacant slot to use after this one, or [`NONE`].
    Vacant(u32),
}

impl<T> Slab<T> {
    /// An empty slab, without memory.
    pub const fn new() -> Self {
        Self { slots: Vec::new(), vacant: NONE, len: 0, first_generation: 1 }
    }

    /// Puts a value in and returns its key.
    ///
    /// # Panics
    /// With 2³² − 1 values in it; owners bound what they keep far below.
    #[inline]
    pub fn insert(&mut self, value: T) -> Key<T> {
        self.insert_with(|_| value)
    }

    /// Puts in the value that `make` makes of its own key.
    ///
    /// # Panics
    /// With 2³² − 1 values in it; owners bound what they keep far below.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(Key<T>) -> T) -> Key<T> {
        if self.vacant == NONE {
            self.add_slot();
        }
        let index = self.vacant;
        let slot = &mut self.slots[index as usize];
        let key = Key::new(index, slot.generation);
        let value = make(key);
        // Seen to be vacant right before it is written over, so that nothing is looked for that would have to be dropped.
        if let Content::Vacant(next) = slot.content {
            self.vacant = next;
            slot.content = Content::Occupied(value);
        }
        self.len += 1;
        key
    }

    #[cold]
    fn add_slot(&mut self) {
        assert!(self.slots.len() < NONE as usize, "a slab holds fewer than 2^32 - 1 values");
        if self.slots.capacity() == 0 {
            // Most connections only ever have one call at a time, and a vector begins with room for four.
            self.slots.reserve_exact(1);
        }
        self.vacant = self.slots.len() as u32;
        self.slots.push(Slot { generation: self.first_generation, content: Content::Vacant(NONE) });
    }

    /// Takes the value out; `None` if the key is stale.
    pub fn remove(&mut self, key: Key<T>) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation != key.generation || matches!(slot.content, Content::Vacant(_)) {
            return None;
        }
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        let content = std::mem::replace(&mut slot.content, Content::Vacant(self.vacant));
        self.vacant = key.index;
        self.len -= 1;
        match content {
            Content::Occupied(value) => Some(value),
            Content::Vacant(_) => None,
        }
    }

    /// Drops the value where it lies, once `take` has taken out of it what is needed: for values too large to move about. `None` if
    /// the key is stale.
    ///
    /// ```
    /// let mut slab = fulmar_base::Slab::new();
    /// let key = slab.insert([1; 100]);
    /// assert_eq!(slab.remove_with(key, |value| value[99]), Some(1));
    /// assert_eq!(slab.remove_with(key, |value| value[99]), None);
    /// ```
    #[inline]
    pub fn remove_with<R>(&mut self, key: Key<T>, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let slot = self.slots.get_mut(key.index())?;
        let Content::Occupied(value) = &mut slot.content else { return None };
        if slot.generation != key.generation {
            return None;
        }
        let taken = take(value);
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        slot.content = Content::Vacant(self.vacant);
        self.vacant = key.index;
        self.len -= 1;
        Some(taken)
    }

    /// The value of `key`; `None` if the key is stale.
    #[inline]
    pub fn get(&self, key: Key<T>) -> Option<&T> {
        match self.slots.get(key.index())? {
            Slot { generation, content: Content::Occupied(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// The value of `key`, to be changed; `None` if the key is stale.
    #[inline]
    pub fn get_mut(&mut self, key: Key<T>) -> Option<&mut T> {
        match self.slots.get_mut(key.index())? {
            Slot { generation, content: Content::Occupied(value) } if *generation == key.generation => {
                Some(value)
            }
            _ => None,
        }
    }

    /// Whether the value of `key` is in the slab.
    pub fn contains(&self, key: Key<T>) -> bool {
        self.get(key).is_some()
    }

    /// The key of the value at `index`, if there is one.
    pub fn key_at(&self, index: usize) -> Option<Key<T>> {
        match self.slots.get(index)? {
            Slot { generation, content: Content::Occupied(_) } => Some(Key::new(index as u32, *generation)),
            _ => None,
        }
    }

    /// How many values are in the slab.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no value is in the slab.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values fit without another allocation.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Gives the memory of an empty slab back. Keys that were stale stay so.
    pub fn shrink(&mut self) {
        if self.len == 0 {
            let highest = self.slots.iter().map(|slot| slot.generation).max();
            self.first_generation = highest.unwrap_or(self.first_generation).max(self.first_generation);
            (self.slots, self.vacant) = (Vec::new(), NONE);
        }
    }

    /// Bytes of memory held, used or not, without what the values own.
    pub fn memory_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to while there are never more than so many values at once.
    pub const fn memory_bytes_max(values_max: usize) -> usize {
        // A vector that grows takes up to twice what it needs, and room for four from the first one on.
        let slots = values_max.saturating_mul(2);
        (if slots < 4 { 4 } else { slots }).saturating_mul(size_of::<Slot<T>>())
    }

    /// All values with their keys, by index.
    pub fn iter(&self) -> impl Iterator<Item = (Key<T>, &T)> {
        self.slots.iter().zip(0..).filter_map(|(slot, index)| match &slot.content {
            Content::Occupied(value) => Some((Key::new(index, slot.generation), value)),
            Content::Vacant(_) => None,
        })
    }

    /// All values with their keys, by index, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Key<T>, &mut T)> {
        self.slots.iter_mut().zip(0..).filter_map(|(slot, index)| match &mut slot.content {
            Content::Occupied(value) => Some((Key::new(index, slot.generation), value)),
            Content::Vacant(_) => None,
        })
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The key of a `T` in a [`Slab`]. Plain data: it borrows nothing, may be kept as long as one likes, and is never 0 as a number.
pub struct Key<T> {
    index: u32,
    generation: u32,
    of: PhantomData<fn() -> T>,
}

impl<T> Key<T> {
    const fn new(index: u32, generation: u32) -> Self {
        Self { index, generation, of: PhantomData }
    }

    /// The slot: dense and reused, for arrays kept beside the slab.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The key as a number, never 0.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The key that [`to_u64`](Self::to_u64) made a number of. Any other number gives a key that is stale or of another value.
    pub const fn from_u64(number: u64) -> Self {
        Self::new(number as u32, (number >> 32) as u32)
    }
}

// Written out, because derived ones would ask the same of `T`.

impl<T> Copy for Key<T> {}

impl<T> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> PartialEq for Key<T> {
    fn eq(&self, other: &Self) -> bool {
        self.to_u64() == other.to_u64()
    }
}

impl<T> Eq for Key<T> {}

impl<T> PartialOrd for Key<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Key<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.index, self.generation).cmp(&(other.index, other.generation))
    }
}

impl<T> Hash for Key<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.to_u64().hash(state);
    }
}

impl<T> fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.index, self.generation)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::testing::Random;

    #[test]
    fn a_slab_of_one_has_room_for_one() {
        let mut slab = Slab::new();
        assert_eq!(slab.capacity(), 0);
        let first = slab.insert([0_u64; 8]);
        assert_eq!(slab.capacity(), 1);
        slab.remove(first);
        slab.insert([1; 8]);
        assert_eq!(slab.capacity(), 1);
        slab.insert([2; 8]);
        assert!(slab.capacity() > 1, "from the second on it grows as vectors do");
    }

    #[test]
    fn agrees_with_a_hash_map() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut slab, mut model, mut keys) = (Slab::new(), HashMap::new(), Vec::new());
            for step in 0..3000 {
                if random.below(2) == 0 {
                    let key = slab.insert(step);
                    assert!(model.insert(key, step).is_none(), "a key is never given twice, seed {seed}");
                    keys.push(key);
                } else if !keys.is_empty() {
                    let key = keys[random.below(keys.len())];
                    assert_eq!(slab.remove(key), model.remove(&key), "seed {seed}");
                }
                assert_eq!(slab.len(), model.len());
            }
            for key in keys {
                assert_eq!(slab.get(key), model.get(&key));
                assert_eq!(slab.contains(key), model.contains_key(&key));
                assert_eq!(slab.key_at(key.index()) == Some(key), model.contains_key(&key));
            }
            assert_eq!(slab.iter().map(|(key, &value)| (key, value)).collect::<HashMap<_, _>>(), model);
        }
    }

    #[test]
    fn stale_and_foreign_keys_get_nothing() {
        let mut slab = Slab::new();
        let key = slab.insert(1);
        slab.remove(key);
        let other = slab.insert(2);
        assert_eq!(slab.get(key), None);
        assert_eq!(slab.get_mut(key), None);
        assert_eq!(slab.remove(key), None);
        assert_eq!(slab.get(Key::from_u64(u64::MAX)), None);
        assert_eq!(slab.remove(Key::from_u64(0)), None);
        assert_eq!(slab.remove(other), Some(2));
        assert_eq!(slab.key_at(0), None);
        assert_eq!(slab.key_at(usize::MAX), None);
    }

    #[test]
    fn generations_wrap_and_are_never_zero() {
        let mut slab = Slab::new();
        slab.insert('a');
        slab.slots[0].generation = u32::MAX;
        let last = slab.key_at(0).expect("occupied");
        assert_eq!(slab.remove(last), Some('a'));
        let first = slab.insert('b');
        assert_eq!(first.to_u64(), 1 << 32);
        assert_eq!(slab.get(last), None);
    }

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..4).map(|n| slab.insert(n)).collect();
        let capacity = slab.capacity();
        slab.remove(keys[1]);
        slab.remove(keys[3]);
        assert_eq!((slab.insert(5).index(), slab.insert(6).index()), (3, 1));
        assert_eq!(slab.capacity(), capacity);
    }

    #[test]
    fn a_value_may_know_its_own_key_and_keys_survive_as_numbers() {
        let mut slab = Slab::new();
        let key = slab.insert_with(|key: Key<u64>| key.to_u64());
        assert_eq!(slab.get(key), Some(&key.to_u64()));
        assert_eq!(Key::from_u64(key.to_u64()), key);
        assert_eq!(format!("{key:?}"), "0v1");
    }

    #[test]
    fn values_change_in_place() {
        let mut slab = Slab::new();
        let keys = [slab.insert(1), slab.insert(2), slab.insert(3)];
        slab.remove(keys[1]);
        for (_, value) in slab.iter_mut() {
            *value *= 10;
        }
        *slab.get_mut(keys[0]).expect("occupied") += 1;
        assert_eq!(slab.iter().map(|(_, &value)| value).collect::<Vec<_>>(), [11, 30]);
    }

    #[test]
    fn a_slab_that_shrinks_forgets_no_stale_key() {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..100).map(|n| slab.insert(n)).collect();
        assert!(slab.memory_bytes() > 0 && slab.memory_bytes() <= Slab::<i32>::memory_bytes_max(100));
        slab.shrink();
        assert_eq!(slab.len(), 100, "what is in use stays");
        keys.iter().for_each(|&key| assert!(slab.remove(key).is_some()));
        for round in 0..3 {
            slab.shrink();
            assert_eq!(slab.memory_bytes(), 0);
            let key = slab.insert(round);
            assert!(keys.iter().all(|&stale| slab.get(stale).is_none()));
            assert_eq!(slab.remove(key), Some(round));
        }
    }
}
