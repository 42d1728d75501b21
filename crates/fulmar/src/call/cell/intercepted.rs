//! What a cell does for the interceptors of its call. They are the user's code: none of it runs under the lock.

use fulmar_grpc::{MetadataMap, Status};

use super::{CallCell, CellState, Side};
use crate::intercept::CallHooks;

impl CallCell {
    /// Handler: shows the metadata to interceptors, unless it has left.
    pub(super) fn open_response(&self, hooks: &CallHooks) -> Result<(), Status> {
        if hooks.side() == Side::Handler { self.show_metadata(hooks) } else { Ok(()) }
    }

    /// Shows the response's metadata to interceptors, once for a call.
    ///
    /// # Errors
    /// They refuse it.
    pub(crate) fn show_metadata(&self, hooks: &CallHooks) -> Result<(), Status> {
        if !hooks.has_metadata_due() {
            return Ok(());
        }
        let place: MapPlace = match hooks.side() {
            Side::Caller => |state| &mut state.metadata_in,
            Side::Handler => |state| &mut state.metadata_out,
        };
        self.with_map(place, |metadata| hooks.show_metadata(metadata))
    }

    /// Shows a message that was received, and before it, on a client, the response's metadata.
    ///
    /// # Errors
    /// Interceptors refuse it.
    pub(crate) fn show_message(&self, hooks: &CallHooks, message: &[u8]) -> Result<(), Status> {
        if hooks.side() == Side::Caller {
            self.show_metadata(hooks)?;
        }
        hooks.receive(message)
    }

    /// Caller: gives the response's metadata, which has arrived, to `take`.
    ///
    /// # Errors
    /// Interceptors refuse it, and were told that the call fails.
    pub(crate) fn take_metadata<R>(&self, take: impl FnOnce(&mut MetadataMap) -> R) -> Result<R, Status> {
        let hooks = self.lock().hooks.clone();
        if let Some(hooks) = hooks {
            self.show_metadata(&hooks).map_err(|status| self.fail(status))?;
        }
        Ok(take(&mut self.lock().metadata_in))
    }

    /// Lends a map of the cell to `change`, which is user code and so must not run under the cell's lock.
    pub(crate) fn with_map<R>(&self, place: MapPlace, change: impl FnOnce(&mut MetadataMap) -> R) -> R {
        let map = std::mem::take(place(&mut self.lock()));
        let mut lent = LentMap { cell: self, place, map };
        change(&mut lent.map)
    }

    /// Caller: tells interceptors, and who follows the call's span, that it fails with `status`, which is found on this side.
    /// Returns the status to fail with.
    pub(crate) fn fail(&self, status: Status) -> Status {
        let mut state = self.lock();
        let (hooks, span) = (state.hooks.take(), std::mem::take(&mut state.span));
        drop(state);
        let status = match hooks {
            Some(hooks) => hooks.fail(status),
            None => status,
        };
        span.end(status.code());
        status
    }

    /// A caller does not want to know how the call ended. Interceptors do.
    pub(super) fn leave_unread(&self) {
        let mut state = self.lock();
        if state.side == Side::Caller
            && let Some(hooks) = state.hooks.take()
        {
            let status = state.status.clone();
            drop(state);
            status.map(|status| hooks.fail(status));
        }
    }
}

pub(crate) type MapPlace = fn(&mut CellState) -> &mut MetadataMap;

/// A map of a cell in the hands of user code. It goes back when that is done, and also when it panics.
struct LentMap<'c> {
    cell: &'c CallCell,
    place: MapPlace,
    map: MetadataMap,
}

impl Drop for LentMap<'_> {
    fn drop(&mut self) {
        *(self.place)(&mut self.cell.lock()) = std::mem::take(&mut self.map);
    }
}
