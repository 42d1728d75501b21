//! Metadata behind one pointer that goes back to its shelf when the request or response that carried it is dropped.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use fulmar_grpc::MetadataMap;

use crate::lock;

/// How many maps one shelf keeps: enough for the calls in flight of a busy connection; more are freed.
const SHELF_MAPS_MAX: usize = 1_024;

/// Recycled metadata maps of one reactor or one channel.
#[derive(Debug, Default)]
pub(crate) struct MetadataShelf {
    state: Mutex<ShelfState>,
}

#[derive(Debug, Default)]
struct ShelfState {
    /// Boxed, since it is the boxes that travel: a lease costs its request one pointer.
    #[expect(clippy::vec_box)]
    maps: Vec<Box<Leased>>,
    /// How many maps were lent and did not come back.
    lent: usize,
}

/// A map that is lent, and where it goes then. One that is on its shelf has no home, which would keep the shelf alive.
#[derive(Debug, Default)]
struct Leased {
    map: MetadataMap,
    home: Option<Arc<MetadataShelf>>,
}

impl MetadataShelf {
    /// An empty map, used before where possible, that returns to `self`.
    pub(crate) fn lease(self: &Arc<Self>) -> MetadataLease {
        let mut state = lock(&self.state);
        state.lent += 1;
        let mut leased = state.maps.pop().unwrap_or_default();
        drop(state);
        leased.home = Some(self.clone());
        MetadataLease(Lease::Own(leased))
    }

    fn take_back(&self, leased: Box<Leased>) {
        let mut state = lock(&self.state);
        state.lent -= 1;
        if state.maps.len() < SHELF_MAPS_MAX {
            state.maps.push(leased);
        }
    }

    /// How many maps are on the way with requests and responses.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.state).lent
    }

    /// Moves what `map` holds into a lease, and leaves it empty. Nothing is taken from the shelf for an empty map.
    #[inline]
    pub(crate) fn lease_from(self: &Arc<Self>, map: &mut MetadataMap) -> MetadataLease {
        if map.is_empty() {
            return MetadataLease::default();
        }
        let mut lease = self.lease();
        std::mem::swap(lease.get_mut(), map);
        lease
    }
}

/// A metadata map that is made when first written to, so that calls without metadata carry nothing.
#[derive(Default)]
pub(crate) struct MetadataLease(Lease);

#[derive(Default)]
enum Lease {
    #[default]
    Nothing,
    Own(Box<Leased>),
    /// What many calls have in common, and none of them may change: it is copied before it is written to.
    Shared(Arc<MetadataMap>),
}

impl MetadataLease {
    /// No map.
    pub(crate) const NONE: Self = Self(Lease::Nothing);

    /// Whether there is no map.
    pub(crate) const fn is_none(&self) -> bool {
        matches!(self.0, Lease::Nothing)
    }

    /// What other calls have too.
    pub(crate) const fn shared(map: Arc<MetadataMap>) -> Self {
        Self(Lease::Shared(map))
    }

    #[inline]
    pub(crate) fn get(&self) -> &MetadataMap {
        match &self.0 {
            Lease::Nothing => MetadataMap::EMPTY,
            Lease::Own(leased) => &leased.map,
            Lease::Shared(map) => map,
        }
    }

    pub(crate) fn get_mut(&mut self) -> &mut MetadataMap {
        if !matches!(self.0, Lease::Own(_)) {
            let mut own = spare();
            if let Lease::Shared(shared) = &self.0 {
                own.map.extend_from(shared);
            }
            self.0 = Lease::Own(own);
        }
        match &mut self.0 {
            Lease::Own(leased) => &mut leased.map,
            Lease::Nothing | Lease::Shared(_) => unreachable!("it was made its own above"),
        }
    }

    /// The map, which does not come back.
    pub(crate) fn into_map(mut self) -> MetadataMap {
        std::mem::take(self.get_mut())
    }
}

impl From<MetadataMap> for MetadataLease {
    fn from(map: MetadataMap) -> Self {
        match map.is_empty() {
            true => Self::default(),
            false => Self(Lease::Own(Box::new(Leased { map, home: None }))),
        }
    }
}

impl Drop for MetadataLease {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.0, Lease::Own(_)) {
            give_back(std::mem::take(&mut self.0));
        }
    }
}

#[inline(never)]
fn give_back(lease: Lease) {
    let Lease::Own(mut leased) = lease else { return };
    leased.map.clear();
    match leased.home.take() {
        Some(home) => home.take_back(leased),
        None => keep_spare(leased),
    }
}

/// How many maps of users wait on one thread for its next request or response, and how much memory each may hold.
const SPARE_MAPS_MAX: usize = 64;
const SPARE_MAP_BYTES_MAX: usize = 16 * 1024;

thread_local! {
    /// A user makes requests and responses out of nothing, so that their maps have no home but the thread.
    #[expect(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<Leased>>> = const { RefCell::new(Vec::new()) };
}

/// An empty map, used before where possible.
fn spare() -> Box<Leased> {
    SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps a map for the next request or response that is made on this thread.
fn keep_spare(leased: Box<Leased>) {
    if leased.map.memory_bytes() > SPARE_MAP_BYTES_MAX {
        return;
    }
    // A thread that is ending keeps nothing.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < SPARE_MAPS_MAX {
            spare.push(leased);
        }
    });
}

impl Clone for MetadataLease {
    fn clone(&self) -> Self {
        match &self.0 {
            Lease::Nothing => Self::default(),
            Lease::Own(leased) => Self(Lease::Own(Box::new(Leased { map: leased.map.clone(), home: None }))),
            Lease::Shared(map) => Self::shared(map.clone()),
        }
    }
}

impl std::fmt::Debug for MetadataLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_copied_before_it_is_written_to() {
        let mut map = MetadataMap::new();
        map.append("x-kind", "test").expect("legal");
        let shared = Arc::new(map);
        let mut lease = MetadataLease::shared(shared.clone());
        let other = lease.clone();
        lease.get_mut().append("x", "1").expect("legal");
        assert_eq!((lease.get().len(), other.get().len(), shared.len()), (2, 1, 1));
        assert_eq!((lease.into_map().len(), other.into_map().len(), shared.len()), (2, 1, 1));
    }

    fn address(lease: &MetadataLease) -> *const MetadataMap {
        lease.get()
    }

    #[test]
    fn a_map_of_a_user_comes_back_empty_with_the_next_one_of_the_thread() {
        let mut lease = MetadataLease::default();
        lease.get_mut().insert("x-key", "value").unwrap();
        let first = address(&lease);
        drop(lease);
        let mut lease = MetadataLease::default();
        assert_eq!(lease.get().len(), 0);
        lease.get_mut();
        assert_eq!((address(&lease), lease.get().len()), (first, 0));
    }

    #[test]
    fn a_map_of_a_shelf_goes_home_wherever_it_is_dropped() {
        let shelf = Arc::new(MetadataShelf::default());
        let lease = shelf.lease();
        let (first, in_use) = (address(&lease) as usize, shelf.in_use());
        std::thread::spawn(move || drop(lease)).join().unwrap();
        assert_eq!((in_use, shelf.in_use()), (1, 0));
        assert_eq!(address(&shelf.lease()) as usize, first);
    }

    #[test]
    fn what_waits_on_a_thread_is_bounded() {
        let mut large = MetadataLease::default();
        large.get_mut().insert("x-key", &"v".repeat(SPARE_MAP_BYTES_MAX)).unwrap();
        drop(large);
        assert_eq!(SPARE.with_borrow(Vec::len), 0);
        let leases: Vec<_> = (0..2 * SPARE_MAPS_MAX)
            .map(|_| {
                let mut lease = MetadataLease::default();
                lease.get_mut();
                lease
            })
            .collect();
        drop(leases);
        assert_eq!(SPARE.with_borrow(Vec::len), SPARE_MAPS_MAX);
    }

    #[test]
    fn what_waits_on_a_shelf_is_bounded() {
        let shelf = Arc::new(MetadataShelf::default());
        let leases: Vec<_> = (0..2 * SHELF_MAPS_MAX).map(|_| shelf.lease()).collect();
        drop(leases);
        let state = lock(&shelf.state);
        assert_eq!((state.maps.len(), state.lent), (SHELF_MAPS_MAX, 0));
    }
}
