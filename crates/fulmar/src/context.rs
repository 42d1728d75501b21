//! What belongs to a call besides its messages.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use fulmar_base::Instant;
use fulmar_grpc::{Compression, MetadataMap};
use fulmar_reactor::clock;

use crate::call::{CallFate, Cancellation};
use crate::extensions::Extensions;
use crate::handling::inherited_deadline;
use crate::metadata_lease::MetadataLease;
use crate::peer::Peer;
use crate::rare::{Rare, Seldom, Spare};

/// What belongs to a call besides its messages: two pointers, since a request is moved about more often than it is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallContext {
    /// Handler: what call it is. None in a client.
    fate: Option<Arc<CallFate>>,
    extras: Rare<Extras>,
}

/// What stays as it is while a call is handled; it lies with the call's [`CallFate`].
#[derive(Debug, Default)]
pub(crate) struct CallFacts {
    /// The time that was left when the call arrived.
    pub(crate) timeout: Option<Duration>,
    /// By the clock of this end.
    pub(crate) deadline: Option<Instant>,
    pub(crate) peer: Peer,
    /// What the messages are compressed with.
    pub(crate) encoding: Option<Arc<str>>,
    pub(crate) path: Cow<'static, str>,
    /// What many calls have in common, if that is all of the request's metadata.
    pub(crate) metadata: Option<Arc<MetadataMap>>,
}

/// What was said of a request besides that.
#[derive(Clone, Debug, Default)]
struct Extras {
    /// In place of that in the [`CallFacts`].
    metadata: Option<MetadataLease>,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// The call is not bound to the deadline of the one in whose handler it is made.
    is_detached: bool,
    /// Client: what the call asks for.
    compression: Compression,
    /// Client: None leaves it to the channel.
    waits_for_ready: Option<bool>,
    extensions: Extensions,
}

static NOTHING: Extras = Extras {
    metadata: None,
    timeout: None,
    deadline: None,
    is_detached: false,
    compression: Compression::Default,
    waits_for_ready: None,
    extensions: Extensions::NONE,
};

/// The first of two times that may not be.
#[inline]
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

thread_local! {
    #[expect(clippy::vec_box)]
    static SPARE: RefCell<Vec<Box<Extras>>> = const { RefCell::new(Vec::new()) };
}

impl Seldom for Extras {
    fn nothing() -> &'static Self {
        &NOTHING
    }

    fn spare() -> &'static Spare<Self> {
        &SPARE
    }
}

impl CallContext {
    /// Of a call to be handled.
    pub(crate) fn handled(fate: Arc<CallFate>) -> Self {
        Self { fate: Some(fate), extras: Rare::NONE }
    }

    fn facts(&self) -> Option<&CallFacts> {
        self.fate.as_deref().map(CallFate::facts)
    }

    /// What is known of a call to be handled, to be told by.
    pub(crate) fn fate(&self) -> Option<&Arc<CallFate>> {
        self.fate.as_ref()
    }

    pub(crate) fn cancellation(&self) -> Cancellation {
        Cancellation::new(self.fate.clone())
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.extras.get().timeout.or_else(|| self.facts()?.timeout)
    }

    pub(crate) fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.extras.get_mut().timeout = timeout;
    }

    /// By the clock of this end: of the call as it arrived, or of another one that this one must not outlast.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.extras.get().deadline.or_else(|| self.facts()?.deadline)
    }

    /// Binds it to the deadline of another call.
    pub(crate) fn set_deadline_of(&mut self, theirs: &Self) {
        let deadline = [self.deadline(), theirs.deadline()].into_iter().flatten().min();
        let timeout = match theirs.deadline() {
            Some(_) => self.timeout(),
            None => [self.timeout(), theirs.timeout()].into_iter().flatten().min(),
        };
        let extras = self.extras.get_mut();
        (extras.deadline, extras.timeout) = (deadline, timeout);
    }

    pub(crate) fn set_detached(&mut self, is_detached: bool) {
        self.extras.get_mut().is_detached = is_detached;
    }

    /// When a call that begins has to end. `timeout` counts where the request has none of its own.
    pub(crate) fn deadline_from_now(&self, timeout: Option<Duration>) -> Option<Instant> {
        let own = self.timeout().or(timeout).map(|timeout| clock().saturating_add(timeout));
        let inherited = if self.extras.get().is_detached { None } else { inherited_deadline() };
        earlier(earlier(own, self.deadline()), inherited)
    }

    pub(crate) fn peer(&self) -> &Peer {
        self.facts().map_or(&Peer::NOBODY, |facts| &facts.peer)
    }

    /// Handler: what the messages are compressed with.
    pub(crate) fn encoding(&self) -> Option<&Arc<str>> {
        self.facts()?.encoding.as_ref()
    }

    /// Handler: whether the only message was compressed.
    pub(crate) fn was_compressed(&self) -> bool {
        self.fate.as_ref().is_some_and(|fate| fate.was_compressed())
    }

    pub(crate) fn note_compressed(&self) {
        if let Some(fate) = &self.fate {
            fate.note_compressed();
        }
    }

    /// Empty in a client.
    pub(crate) fn path(&self) -> &Cow<'static, str> {
        const NONE: &Cow<'static, str> = &Cow::Borrowed("");
        self.facts().map_or(NONE, |facts| &facts.path)
    }

    pub(crate) fn compression(&self) -> &Compression {
        &self.extras.get().compression
    }

    pub(crate) fn set_compression(&mut self, compression: Compression) {
        self.extras.get_mut().compression = compression;
    }

    /// Client: whether the call waits where no connection can be had; None leaves it to the channel.
    pub(crate) fn waits_for_ready(&self) -> Option<bool> {
        self.extras.get().waits_for_ready
    }

    pub(crate) fn set_waits_for_ready(&mut self, waits: bool) {
        self.extras.get_mut().waits_for_ready = Some(waits);
    }

    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extras.get().extensions
    }

    pub(crate) fn extensions_mut(&mut self) -> &mut Extensions {
        &mut self.extras.get_mut().extensions
    }

    pub(crate) fn take_extensions(&mut self) -> Extensions {
        self.extras
            .written_mut()
            .map_or_else(Extensions::default, |extras| std::mem::take(&mut extras.extensions))
    }

    pub(crate) fn metadata(&self) -> &MetadataMap {
        match &self.extras.get().metadata {
            Some(lease) => lease.get(),
            None => self.facts().and_then(|facts| facts.metadata.as_deref()).unwrap_or(MetadataMap::EMPTY),
        }
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut MetadataMap {
        let shared = self.fate.as_deref().and_then(|fate| fate.facts().metadata.as_ref());
        let lease = &mut self.extras.get_mut().metadata;
        lease.get_or_insert_with(|| shared.cloned().map(MetadataLease::shared).unwrap_or_default()).get_mut()
    }

    pub(crate) fn set_metadata(&mut self, metadata: MetadataLease) {
        self.extras.get_mut().metadata = Some(metadata);
    }

    /// The metadata, which is not asked for again.
    pub(crate) fn take_metadata(&mut self) -> MetadataLease {
        let written = self.extras.written_mut().and_then(|extras| extras.metadata.take());
        written.unwrap_or_else(|| {
            let shared = self.facts().and_then(|facts| facts.metadata.clone());
            shared.map(MetadataLease::shared).unwrap_or_default()
        })
    }
}
