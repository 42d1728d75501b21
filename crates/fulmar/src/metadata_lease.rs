//! Metadata behind one pointer that goes back to its shelf when the request or response that carried it is dropped.

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
    maps: Vec<Box<MetadataMap>>,
    /// How many maps were lent and did not come back.
    lent: usize,
}

impl MetadataShelf {
    /// An empty map, used before where possible, that returns to `self`.
    pub(crate) fn lease(self: &Arc<Self>) -> MetadataLease {
        let mut state = lock(&self.state);
        state.lent += 1;
        let map = state.maps.pop().unwrap_or_default();
        drop(state);
        MetadataLease { map: Some(map), home: Some(self.clone()) }
    }

    /// How many maps are on the way with requests and responses.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.state).lent
    }

    /// Moves what `map` holds into a lease, and leaves it empty. Nothing is taken from the shelf for an empty map.
    pub(crate) fn lease_from(self: &Arc<Self>, map: &mut MetadataMap) -> MetadataLease {
        if map.is_empty() {
            return MetadataLease::default();
        }
        let mut lease = self.lease();
        std::mem::swap(lease.get_mut(), map);
        lease
    }
}

/// A metadata map that is made when first written to, so that calls without metadata carry an empty pointer.
#[derive(Default)]
pub(crate) struct MetadataLease {
    map: Option<Box<MetadataMap>>,
    home: Option<Arc<MetadataShelf>>,
}

impl MetadataLease {
    pub(crate) fn get(&self) -> &MetadataMap {
        self.map.as_deref().unwrap_or(MetadataMap::EMPTY)
    }

    pub(crate) fn get_mut(&mut self) -> &mut MetadataMap {
        self.map.get_or_insert_with(Box::default)
    }

    /// The map, which does not come back.
    pub(crate) fn into_map(mut self) -> MetadataMap {
        self.map.as_deref_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl From<MetadataMap> for MetadataLease {
    fn from(map: MetadataMap) -> Self {
        Self { map: (!map.is_empty()).then(|| Box::new(map)), home: None }
    }
}

impl Drop for MetadataLease {
    fn drop(&mut self) {
        if let (Some(mut map), Some(home)) = (self.map.take(), self.home.take()) {
            map.clear();
            let mut state = lock(&home.state);
            state.lent -= 1;
            if state.maps.len() < SHELF_MAPS_MAX {
                state.maps.push(map);
            }
        }
    }
}

impl Clone for MetadataLease {
    fn clone(&self) -> Self {
        Self { map: self.map.clone(), home: None }
    }
}

impl std::fmt::Debug for MetadataLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}
