//! Cells that wait for their next calls.

use std::sync::Arc;

use super::CallCell;

/// How many cells one shelf keeps: more than a connection has streams by default.
const CELLS_MAX: usize = 2_048;

/// How much memory the cells of one shelf hold on to, in bytes: buffers, metadata, blocks.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// Recycled cells of one reactor or one channel.
#[derive(Default)]
pub(crate) struct CellShelf {
    /// The cells, each with the memory it holds on to.
    cells: Vec<(Arc<CallCell>, usize)>,
    bytes: usize,
}

impl CellShelf {
    /// A cell that only the caller holds.
    pub(crate) fn take(&mut self) -> Arc<CallCell> {
        match self.cells.pop() {
            Some((cell, bytes)) => {
                self.bytes -= bytes;
                cell
            }
            None => Arc::default(),
        }
    }

    /// Keeps a cell for another call, unless somebody else still holds it or the shelf is full.
    pub(crate) fn give(&mut self, mut cell: Arc<CallCell>) {
        if let Some(bytes) = CallCell::recycle(&mut cell) {
            self.keep(cell, bytes);
        }
    }

    /// Keeps a cell that was recycled, and holds on to so many bytes, unless the shelf is full.
    pub(crate) fn keep(&mut self, cell: Arc<CallCell>, bytes: usize) {
        if self.cells.len() < CELLS_MAX && self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.cells.push((cell, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            cell.lock().outbound.reserve(32 * 1024);
            shelf.give(cell);
        }
        assert!(shelf.bytes <= BYTES_MAX && shelf.cells.len() < CELLS_MAX, "{} cells", shelf.cells.len());
        let kept = shelf.cells.len();
        for _ in 0..kept {
            shelf.take();
        }
        assert_eq!(shelf.bytes, 0);
    }
}
