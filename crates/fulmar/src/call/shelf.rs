//! Cells that wait for their next calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use super::CallCell;
use crate::lock;

/// How many cells one shelf keeps: more than a connection has streams by default.
const CELLS_MAX: usize = 2_048;

/// How much memory the cells of one shelf hold on to, in bytes: buffers, metadata, blocks.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many cells may wait for the last of those who hold them to let go.
const HELD_MAX: usize = 16;

/// Recycled cells of one reactor or one channel.
pub(crate) struct CellShelf {
    /// The cells, each with the memory it holds on to.
    cells: Vec<(Arc<CallCell>, usize)>,
    bytes: usize,
    /// Cells that somebody else held when they were given: most often a connection, for the moment between ending a call and
    /// letting go of it. The oldest are at the front.
    held: VecDeque<Arc<CallCell>>,
    /// How many cells of this shelf there are, wherever they are.
    all: Arc<AtomicUsize>,
}

/// Counts a cell for as long as it exists.
#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for CellShelf {
    fn default() -> Self {
        // What seldom happens must not allocate when it does.
        Self { cells: Vec::new(), bytes: 0, held: VecDeque::with_capacity(HELD_MAX), all: Arc::default() }
    }
}

impl CellShelf {
    /// A cell that only the caller holds.
    pub(crate) fn take(&mut self) -> Arc<CallCell> {
        if let Some((cell, bytes)) = self.cells.pop() {
            self.bytes -= bytes;
            return cell;
        }
        for _ in 0..self.held.len() {
            let Some(mut cell) = self.held.pop_front() else { break };
            if CallCell::recycle(&mut cell).is_some() {
                return cell;
            }
            self.held.push_back(cell);
        }
        Arc::new(CallCell::counted(Counted::new(&self.all)))
    }

    /// How many cells are with calls or with their handles.
    pub(crate) fn in_use(&mut self) -> usize {
        for _ in 0..self.held.len() {
            if let Some(cell) = self.held.pop_front() {
                self.give(cell);
            }
        }
        self.all.load(Ordering::Relaxed) - self.cells.len()
    }

    /// Keeps a cell for another call.
    pub(crate) fn give(&mut self, mut cell: Arc<CallCell>) {
        let bytes = CallCell::recycle(&mut cell);
        self.keep(cell, bytes);
    }

    /// Keeps a cell that was recycled, and holds on to so many bytes, unless the shelf is full; or one that was not, until it can be.
    pub(crate) fn keep(&mut self, cell: Arc<CallCell>, bytes: Option<usize>) {
        match bytes {
            Some(bytes) if self.cells.len() < CELLS_MAX && self.bytes + bytes <= BYTES_MAX => {
                self.bytes += bytes;
                self.cells.push((cell, bytes));
            }
            Some(_) => {}
            None => {
                if self.held.len() == HELD_MAX {
                    self.held.pop_front();
                }
                self.held.push_back(cell);
            }
        }
    }
}

/// The cells of a channel, on a shelf that serves others while the channel rests.
#[derive(Default)]
pub(crate) struct ChannelCells {
    shelf: Mutex<Option<Box<CellShelf>>>,
}

/// The shelves of channels that rest, for those whose next call begins. A channel may rest for the first time long after its first
/// call: that must not allocate.
#[allow(clippy::vec_box, reason = "channels take the box itself: no memory is moved, none is allocated")]
static IDLE_SHELVES: LazyLock<Mutex<Vec<Box<CellShelf>>>> =
    LazyLock::new(|| Mutex::new(Vec::with_capacity(IDLE_SHELVES_MAX)));

/// How many of them are kept, and how many cells and bytes one may have.
const IDLE_SHELVES_MAX: usize = 64;
const IDLE_CELLS_MAX: usize = 16;
const IDLE_BYTES_MAX: usize = 64 * 1024;

impl ChannelCells {
    /// A cell that only the caller holds.
    pub(crate) fn take(&self) -> Arc<CallCell> {
        let mut shelf = lock(&self.shelf);
        shelf.get_or_insert_with(|| lock(&IDLE_SHELVES).pop().unwrap_or_default()).take()
    }

    /// As [`CellShelf::keep`].
    pub(crate) fn keep(&self, cell: Arc<CallCell>, bytes: Option<usize>) {
        if let Some(shelf) = &mut *lock(&self.shelf) {
            shelf.keep(cell, bytes);
        }
    }

    /// How many cells are with calls or with their handles.
    pub(crate) fn in_use(&self) -> usize {
        lock(&self.shelf).as_mut().map_or(0, |shelf| shelf.in_use())
    }

    /// Gives the shelf away, with the cells that wait there, unless some are in use.
    pub(crate) fn rest(&self) {
        let mut shelf = lock(&self.shelf);
        let Some(idle) = shelf.take_if(|shelf| shelf.in_use() == 0) else { return };
        drop(shelf);
        let mut shelves = lock(&IDLE_SHELVES);
        let is_small = idle.cells.len() <= IDLE_CELLS_MAX && idle.bytes <= IDLE_BYTES_MAX;
        if is_small && shelves.len() < IDLE_SHELVES_MAX {
            shelves.push(idle);
        } else {
            drop(shelves);
            drop(idle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_at_rest_has_no_shelf_and_one_with_a_cell_in_use_does_not_rest() {
        let cells = ChannelCells::default();
        assert_eq!(cells.in_use(), 0);
        let mut cell = cells.take();
        cells.rest();
        assert_eq!(cells.in_use(), 1);
        let bytes = CallCell::recycle(&mut cell);
        cells.keep(cell, bytes);
        cells.rest();
        assert!(lock(&cells.shelf).is_none());
        let cell = cells.take();
        assert_eq!(cells.in_use(), 1, "whichever shelf it has got");
        drop(cell);
        assert_eq!(cells.in_use(), 0);
    }

    #[test]
    fn a_cell_comes_back_and_one_that_somebody_else_holds_does_not() {
        let mut shelf = CellShelf::default();
        let cell = shelf.take();
        let address = Arc::as_ptr(&cell);
        shelf.give(cell);
        let cell = shelf.take();
        assert_eq!(Arc::as_ptr(&cell), address);
        let held = cell.clone();
        shelf.give(cell);
        assert!(!Arc::ptr_eq(&shelf.take(), &held));
        // Not before that somebody lets go.
        drop(held);
        assert_eq!(Arc::as_ptr(&shelf.take()), address);
    }

    #[test]
    fn cells_count_until_they_are_given_back_or_dropped() {
        let mut shelf = CellShelf::default();
        let [one, two, three]: [_; 3] = std::array::from_fn(|_| shelf.take());
        assert_eq!(shelf.in_use(), 3);
        shelf.give(one);
        drop(two);
        let held = three.clone();
        shelf.give(three);
        assert_eq!(shelf.in_use(), 1);
        drop(held);
        assert_eq!(shelf.in_use(), 0);
    }

    #[test]
    fn of_the_cells_that_are_never_let_go_few_are_kept() {
        let mut shelf = CellShelf::default();
        let leaked: Vec<_> = (0..10 * HELD_MAX)
            .map(|_| {
                let cell = shelf.take();
                shelf.give(cell.clone());
                cell
            })
            .collect();
        assert_eq!(shelf.held.len(), HELD_MAX);
        let kept = leaked.iter().filter(|cell| Arc::strong_count(cell) > 1).count();
        assert_eq!(kept, HELD_MAX);
    }

    #[test]
    fn a_shelf_keeps_no_more_memory_and_no_more_cells_than_its_limits() {
        let mut shelf = CellShelf::default();
        let cells: Vec<_> = (0..=CELLS_MAX).map(|_| shelf.take()).collect();
        cells.into_iter().for_each(|cell| shelf.give(cell));
        assert_eq!(shelf.cells.len(), CELLS_MAX);

        let mut shelf = CellShelf::default();
        let cells: Vec<_> = (0..CELLS_MAX).map(|_| shelf.take()).collect();
        for cell in cells {
            cell.lock().outbound.bytes_mut().reserve(32 * 1024);
            shelf.give(cell);
        }
        assert!(shelf.bytes <= BYTES_MAX && shelf.cells.len() < CELLS_MAX, "{} cells", shelf.cells.len());
        let kept = shelf.cells.len();
        for _ in 0..kept {
            shelf.take();
        }
        assert_eq!(shelf.bytes, 0);
    }

    #[test]
    fn few_shelves_wait_for_channels_to_come_and_none_that_holds_much() {
        let rest_with = |cells: &ChannelCells, taken: Vec<Arc<CallCell>>, bytes: usize| {
            taken.into_iter().for_each(|cell| cells.keep(cell, Some(bytes)));
            let shelf = Arc::downgrade(&lock(&cells.shelf).as_ref().unwrap().all);
            cells.rest();
            shelf
        };
        // Other tests take from what waits, and add to it: there may be no more in any case.
        let channels: Vec<_> = (0..2 * IDLE_SHELVES_MAX).map(|_| ChannelCells::default()).collect();
        let taken: Vec<_> = channels.iter().map(ChannelCells::take).collect();
        for (channel, cell) in channels.iter().zip(taken) {
            rest_with(channel, vec![cell], 0);
        }
        assert!(lock(&IDLE_SHELVES).len() <= IDLE_SHELVES_MAX);

        lock(&IDLE_SHELVES).clear();
        let (many, large) = (ChannelCells::default(), ChannelCells::default());
        let taken: Vec<_> = (0..=IDLE_CELLS_MAX).map(|_| many.take()).collect();
        assert_eq!(rest_with(&many, taken, 0).strong_count(), 0, "it has too many cells");
        let taken = vec![large.take()];
        assert_eq!(rest_with(&large, taken, IDLE_BYTES_MAX + 1).strong_count(), 0, "it holds too much");
    }
}
