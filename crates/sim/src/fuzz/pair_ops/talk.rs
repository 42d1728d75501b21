use std::collections::{BTreeMap, VecDeque};

use fulmar_http2::StreamKey;

/// What each end knows of its streams, by id.
pub(super) type Talks = BTreeMap<u32, Talk>;

/// The fields of a header section.
pub(super) type Section = Vec<(Vec<u8>, Vec<u8>)>;

/// One stream, as its user at one end has it.
#[derive(Debug)]
pub(super) struct Talk {
    pub(super) key: StreamKey,
    /// What was sent: header sections, how many bytes of content, and whether that is all.
    pub(super) sections_sent: VecDeque<Section>,
    pub(super) sent: usize,
    pub(super) ended: bool,
    /// What has arrived: how many header sections and bytes, and whether that is all.
    pub(super) sections_received: usize,
    pub(super) received: usize,
    pub(super) end_received: bool,
    /// Received and not released.
    pub(super) held: usize,
    /// Something waits, so that the engine owes a word when it does not any longer.
    pub(super) writable_owed: bool,
    pub(super) over: Option<Over>,
    /// The user wants no more of what the peer sends.
    pub(super) discarding: bool,
}

/// How a stream ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Over {
    Closed,
    Reset,
    /// By the user, without an event.
    Dropped,
}

impl Talk {
    pub(super) const fn new(key: StreamKey) -> Self {
        Self {
            key,
            sections_sent: VecDeque::new(),
            sent: 0,
            ended: false,
            sections_received: 0,
            received: 0,
            end_received: false,
            held: 0,
            writable_owed: false,
            over: None,
            discarding: false,
        }
    }

    /// Whether all that was sent must have arrived.
    pub(super) fn ended_well(&self) -> bool {
        self.over == Some(Over::Closed) && !self.discarding
    }
}
