//! A handle's hold on the cell of its call.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::CallCell;

/// A cell that its handle gives away when it is dropped, so that the cell serves another call.
#[derive(Debug, Default)]
pub(crate) struct HeldCell(Option<Arc<CallCell>>);

impl HeldCell {
    /// The cell, when the handle is dropped. None when it was given away before.
    pub(crate) fn take(&mut self) -> Option<Arc<CallCell>> {
        self.0.take()
    }
}

impl From<Arc<CallCell>> for HeldCell {
    fn from(cell: Arc<CallCell>) -> Self {
        Self(Some(cell))
    }
}

impl Deref for HeldCell {
    type Target = Arc<CallCell>;

    #[inline]
    fn deref(&self) -> &Arc<CallCell> {
        self.0.as_ref().expect("a handle's cell is taken only while the handle is dropped")
    }
}

impl DerefMut for HeldCell {
    fn deref_mut(&mut self) -> &mut Arc<CallCell> {
        self.0.as_mut().expect("a handle's cell is taken only while the handle is dropped")
    }
}
