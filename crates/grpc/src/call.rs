//! The calls of one connection: what is kept for each, and the table they are in.

use std::mem;
use std::sync::Arc;

use fulmar_base::{DeadlineHeap, DeadlineKey, Holding, Instant, Key, Line, Pool, Slab};
use fulmar_http2::{Connection, StreamKey};

use crate::encoding::{Choice, Compress, EncodingId, PeerAccepts};
use crate::framing::Deframer;
use crate::metadata::MetadataMap;
use crate::status::Status;

/// What names a call on its connection. The index is dense and reused, so that tables may run parallel to the calls;
/// the key of a call that is over names nothing.
pub type CallKey = Key<Call>;

/// What an end keeps for a call.
#[derive(Debug)]
pub struct Call {
    pub(crate) stream: StreamKey,
    pub(crate) deframer: Deframer,
    pub(crate) credit: Credit,
    /// What the peer's messages are compressed with.
    pub(crate) encoding: Option<EncodingId>,
    /// What the messages to the peer are compressed with, and which of them.
    pub(crate) sends: Option<Choice>,
    pub(crate) compress: Compress,
    pub(crate) peer_accepts: PeerAccepts,
    /// The number of the message that is unfinished, counted over all calls in the order in which they began.
    pub(crate) message: u64,
    /// The metadata that opened the other side, if there was any, until it is taken. In a box, as most calls have none.
    pub(crate) metadata: Option<Box<MetadataMap>>,
    /// Server: the same, of a request whose headers were read before; `metadata` is empty then.
    pub(crate) shared_metadata: Option<Arc<MetadataMap>>,
    pub(crate) deadline: Option<Instant>,
    deadline_key: Option<DeadlineKey>,
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    /// Client: how the call ended, and what came with that, until they are taken.
    pub(crate) status: Option<Status>,
    pub(crate) trailers: Option<Box<MetadataMap>>,
    /// Client: the server has not looked at the call.
    pub(crate) unprocessed: bool,
    /// Server: why the call ends before its answer.
    pub(crate) ending: Ending,
}

/// How a call ended, to the end that served it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Its answer was handed over.
    #[default]
    Answered,
    /// The client gave it up (RST_STREAM).
    Cancelled,
    /// Its deadline passed, here or, to judge by a RST_STREAM that comes after it, at the client.
    DeadlineExceeded,
    /// The connection is over.
    ConnectionLost,
    /// One of the ends broke a rule or crossed a limit, and the call was ended with an error.
    Failed,
}

impl Call {
    /// The number of the message that has begun to arrive and is not whole.
    pub(crate) fn unfinished_message(&self) -> Option<u64> {
        let is_unfinished = self.inbound == Inbound::Messages && self.deframer.is_midway();
        is_unfinished.then_some(self.message)
    }
}

/// How far this end is with sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outbound {
    /// Server: the response headers have not been sent.
    Headers,
    /// Messages may be sent.
    Messages,
    /// END_STREAM is sent, or waits behind messages.
    Ended,
}

/// How far this end is with receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// Client: the response headers have not arrived.
    Headers,
    /// Messages arrive.
    Messages,
    /// Client: the answer is not gRPC; `status` says what it is.
    Foreign,
    /// END_STREAM has arrived, or what arrives does not count any more.
    Ended,
}

/// What decides when the peer may send more.
///
/// A byte is credited to the stream's window when the application has taken its message. That alone would stop a message
/// longer than the window for good, so one more byte is credited for each that is held but belongs to no message yet.
/// With `held` = untaken + the part of an unfinished message, the rule `credit what exceeds untaken` keeps
/// `held <= window + one message`, and a peer is stopped only while a whole window of messages is untaken.
///
/// A compressed message has two lengths: what is credited is what arrived, what is held is what it has unfolded to. The application
/// counts the latter only, so that a part of it taken stands for the same part of what arrived.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    /// Bytes received and not credited.
    unreleased: usize,
    /// Bytes of the messages handed over and not taken, as they arrived.
    untaken: usize,
    /// The same as they were handed over: other than `untaken` only if messages were compressed.
    unfolded: usize,
    /// Those, and what has arrived of an unfinished message.
    held: usize,
}

impl Credit {
    /// So many bytes have arrived.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        self.unreleased = self.unreleased.saturating_add(bytes);
        self.held = self.held.saturating_add(bytes);
    }

    /// A message that arrived in so many bytes, prefix included, was handed over in `unfolded` bytes.
    #[inline]
    pub(crate) fn handed_over(&mut self, bytes: usize, unfolded: usize) {
        self.untaken = self.untaken.saturating_add(bytes);
        self.unfolded = self.unfolded.saturating_add(unfolded);
    }

    /// The application took so many of the bytes handed over. Returns by how much less is held.
    #[inline]
    pub(crate) fn taken(&mut self, bytes: usize) -> usize {
        let bytes = self.take(bytes);
        let freed = bytes.min(self.held);
        self.held -= freed;
        freed
    }

    /// The application will take so many of the bytes handed over when the call has ended: they are held, and credited.
    pub(crate) fn kept(&mut self, bytes: usize) {
        self.take(bytes);
    }

    /// What is held has unfolded from so many bytes to so many.
    fn unfolded(&mut self, from: usize, to: usize) {
        self.held = self.held.saturating_sub(from).saturating_add(to);
    }

    /// The application took, or will take, so many of the bytes handed over. Returns how many there were.
    #[inline]
    fn take(&mut self, bytes: usize) -> usize {
        let bytes = bytes.min(self.unfolded);
        if bytes == self.unfolded {
            self.untaken = 0;
        } else if self.unfolded == self.untaken {
            self.untaken -= bytes;
        } else {
            let share = self.untaken as u128 * bytes as u128 / self.unfolded as u128;
            // Not more than `untaken`, since `bytes` are not more than `unfolded`.
            self.untaken -= share as usize;
        }
        self.unfolded -= bytes;
        bytes
    }

    /// How many bytes are held for the call.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Nothing is held for the call any longer. Returns how much was.
    #[inline]
    fn let_go(&mut self) -> usize {
        mem::take(&mut self.held)
    }

    /// How many bytes to credit; they count as credited.
    #[inline]
    pub(crate) fn settle(&mut self) -> usize {
        let excess = self.unreleased.saturating_sub(self.untaken);
        self.unreleased -= excess;
        excess
    }
}

/// All calls of a connection.
#[derive(Default)]
pub(crate) struct Calls {
    slots: Slab<Call>,
    deadlines: DeadlineHeap<CallKey>,
    /// Calls that are over and have to be reported. May hold stale keys.
    ended: Line<CallKey>,
    /// Maps that wait for the next calls, and how much memory they are.
    #[allow(clippy::vec_box, reason = "calls take the box itself, so that no box is made in steady state")]
    spare: Vec<Box<MetadataMap>>,
    spare_bytes: usize,
    /// What is held for all calls together.
    held: Holding,
}

/// How much memory of maps waits for reuse at most: what some hundred calls with a few values need.
const SPARE_BYTES_MAX: usize = 128 * 1024;

/// What a table without calls keeps when time has passed: what a few of them need at a time.
const KEPT_BYTES_MAX: usize = 8 * 1024;

/// What a call is made of when it begins.
pub(crate) struct NewCall {
    pub(crate) stream: StreamKey,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) deadline: Option<Instant>,
    pub(crate) metadata: Option<Box<MetadataMap>>,
    pub(crate) shared_metadata: Option<Arc<MetadataMap>>,
    pub(crate) encoding: Option<EncodingId>,
    pub(crate) sends: Option<Choice>,
    pub(crate) peer_accepts: PeerAccepts,
}

impl Calls {
    /// Adds a call and writes its key into its stream.
    #[inline]
    pub(crate) fn insert(&mut self, connection: &mut Connection, new: NewCall) -> CallKey {
        let deadlines = &mut self.deadlines;
        let stream = new.stream;
        let key = self.slots.insert_with(|key| Call {
            stream,
            deframer: Deframer::default(),
            credit: Credit::default(),
            encoding: new.encoding,
            sends: new.sends,
            compress: Compress::Default,
            peer_accepts: new.peer_accepts,
            message: 0,
            metadata: new.metadata,
            shared_metadata: new.shared_metadata,
            deadline: new.deadline,
            deadline_key: new.deadline.map(|at| deadlines.insert(at, key)),
            outbound: new.outbound,
            inbound: new.inbound,
            status: None,
            trailers: None,
            unprocessed: false,
            ending: Ending::Answered,
        });
        connection.set_user(stream, key.to_u64());
        key
    }

    /// The call with this key.
    #[inline]
    pub(crate) fn get(&self, key: CallKey) -> Option<&Call> {
        self.slots.get(key)
    }

    /// The call with this key, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        self.slots.get_mut(key)
    }

    /// The key of the call on this stream.
    #[inline]
    pub(crate) fn on_stream(&self, connection: &Connection, stream: StreamKey) -> Option<CallKey> {
        self.with_user(stream, connection.user(stream)?)
    }

    /// The key of the call on a stream that is gone, into which `user` had been written.
    #[inline]
    pub(crate) fn with_user(&self, stream: StreamKey, user: u64) -> Option<CallKey> {
        let key = CallKey::from_u64(user);
        self.slots.get(key).is_some_and(|call| call.stream == stream).then_some(key)
    }

    /// A message that is not compressed has arrived, whole, in so many bytes, prefix included: the call that got it. None, and nothing
    /// counted, if the call on the stream cannot have got such a message: it has ended, or is in the middle of one, or its messages are
    /// to be looked at first.
    #[inline]
    pub(crate) fn receive_whole(
        &mut self,
        pool: &mut Pool,
        (stream, user): (StreamKey, u64),
        bytes: usize,
    ) -> Option<CallKey> {
        let key = CallKey::from_u64(user);
        let call = self.slots.get_mut(key)?;
        if call.stream != stream
            || call.inbound != Inbound::Messages
            || call.encoding.is_some()
            || call.deframer.is_midway()
        {
            return None;
        }
        call.credit.received(bytes);
        call.credit.handed_over(bytes, bytes);
        pool.hold_for(&mut self.held, bytes);
        Some(key)
    }

    /// Whether the call goes on, and no message has begun.
    #[inline]
    pub(crate) fn is_between_messages(&self, key: CallKey) -> bool {
        let call = self.slots.get(key);
        call.is_some_and(|call| call.inbound == Inbound::Messages && !call.deframer.is_midway())
    }

    /// Bytes of a call have arrived.
    pub(crate) fn received(&mut self, pool: &mut Pool, key: CallKey, bytes: usize) {
        let Some(call) = self.slots.get_mut(key) else { return };
        call.credit.received(bytes);
        pool.hold_for(&mut self.held, bytes);
    }

    /// What has arrived of a call in `from` bytes has unfolded to `to`.
    pub(crate) fn unfolded(&mut self, pool: &mut Pool, key: CallKey, from: usize, to: usize) {
        let Some(call) = self.slots.get_mut(key) else { return };
        let before = call.credit.held();
        call.credit.unfolded(from, to);
        let after = call.credit.held();
        pool.unhold_for(&mut self.held, before);
        pool.hold_for(&mut self.held, after);
    }

    /// The application took so many of the bytes handed over.
    #[inline]
    pub(crate) fn taken(&mut self, pool: &mut Pool, key: CallKey, bytes: usize) {
        let Some(call) = self.slots.get_mut(key) else { return };
        let freed = call.credit.taken(bytes);
        pool.unhold_for(&mut self.held, freed);
    }

    /// Drops the message in progress of a call that takes no more, and counts nothing for the call any longer.
    #[inline]
    pub(crate) fn let_go(&mut self, pool: &mut Pool, key: CallKey) {
        let Some(call) = self.slots.get_mut(key) else { return };
        call.deframer.clear(pool);
        let held = call.credit.let_go();
        pool.unhold_for(&mut self.held, held);
    }

    /// What was received for all calls and not taken.
    pub(crate) const fn held(&self) -> &Holding {
        &self.held
    }

    /// The calls, to be looked at and changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut Call)> {
        self.slots.iter_mut()
    }

    /// Removes a call and recycles what it held.
    pub(crate) fn remove(&mut self, pool: &mut Pool, key: CallKey) {
        let held = &mut self.held;
        let left = self.slots.remove_with(key, |call| {
            call.deframer.clear(pool);
            let bytes = call.credit.let_go();
            if bytes > 0 {
                pool.unhold_for(held, bytes);
            }
            (call.metadata.take(), call.trailers.take(), call.deadline_key)
        });
        let Some((metadata, trailers, deadline)) = left else { return };
        if let Some(metadata) = metadata {
            self.give_map(metadata);
        }
        if let Some(trailers) = trailers {
            self.give_map(trailers);
        }
        if let Some(deadline) = deadline {
            self.deadlines.remove(deadline);
        }
    }

    /// Marks a call as over and has it reported.
    #[inline]
    pub(crate) fn end(&mut self, key: CallKey) {
        let Some(call) = self.slots.get_mut(key) else { return };
        call.inbound = Inbound::Ended;
        call.outbound = Outbound::Ended;
        if let Some(deadline) = call.deadline_key.take() {
            self.deadlines.remove(deadline);
        }
        self.ended.push_back(key);
    }

    /// The next call to report as over.
    #[inline]
    pub(crate) fn next_ended(&mut self) -> Option<CallKey> {
        loop {
            let key = self.ended.pop_front()?;
            if self.slots.contains(key) {
                return Some(key);
            }
        }
    }

    /// Whether a call waits for its report.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// When the next call has to be ended.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.next()
    }

    /// How many calls have a deadline that has not come.
    pub(crate) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// A call whose deadline has passed.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<CallKey> {
        let key = self.deadlines.pop_expired(now)?;
        if let Some(call) = self.slots.get_mut(key) {
            call.deadline_key = None;
        }
        Some(key)
    }

    /// The number of calls, with those that are over and wait for their report.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Ends all calls, after `mark` has seen each, and has them reported.
    pub(crate) fn end_all(&mut self, mut mark: impl FnMut(&mut Call)) {
        for (key, call) in self.slots.iter_mut() {
            mark(call);
            call.inbound = Inbound::Ended;
            call.outbound = Outbound::Ended;
            if let Some(deadline) = call.deadline_key.take() {
                self.deadlines.remove(deadline);
            }
            self.ended.push_back(key);
        }
    }

    /// Bytes of memory held by the table, used or not.
    pub(crate) fn slots_memory(&self) -> usize {
        self.slots.memory_bytes() + self.deadlines.memory_bytes() + self.ended.memory_bytes()
    }

    /// The most that [`slots_memory`](Self::slots_memory) comes to with so many calls at once.
    pub(crate) fn slots_memory_max(calls: usize) -> usize {
        // A ring that grows takes up to twice what it needs, and room for four from the first one on.
        let ended = calls.saturating_mul(2).max(4).saturating_mul(size_of::<CallKey>());
        Slab::<Call>::memory_bytes_max(calls)
            .saturating_add(DeadlineHeap::<CallKey>::memory_bytes_max(calls))
            .saturating_add(ended)
    }

    /// Bytes of memory held by the metadata of calls, and by maps that wait for the next ones.
    pub(crate) fn metadata_memory(&self) -> usize {
        let of_calls = self.slots.iter().map(|(_, call)| {
            let status = call.status.as_ref().map_or(0, |status| status.message().len());
            // What others hold too is counted with the readings.
            let shared = call.shared_metadata.as_ref().filter(|map| Arc::strong_count(map) == 1);
            let shared = shared.map_or(0, |map| map.memory_bytes());
            let maps = [&call.metadata, &call.trailers].into_iter().flatten().map(|map| map_bytes(map));
            shared + maps.sum::<usize>() + status
        });
        of_calls.sum::<usize>() + self.spare_memory()
    }

    /// Bytes of memory held by maps that wait for the next calls.
    pub(crate) fn spare_memory(&self) -> usize {
        self.spare_bytes + self.spare.capacity() * size_of::<Box<MetadataMap>>()
    }

    /// The most that maps which wait for the next calls come to, with so many calls at once.
    pub(crate) fn spare_memory_max(calls: usize) -> usize {
        // Two for each call, in a vector that grows to twice what it needs.
        SPARE_BYTES_MAX + calls.saturating_mul(4 * size_of::<Box<MetadataMap>>())
    }

    /// Bytes of memory held by unfinished messages, and of messages handed over and not taken.
    pub(crate) fn messages_memory(&self) -> usize {
        self.slots.iter().map(|(_, call)| call.deframer.memory_bytes() + call.credit.unfolded).sum()
    }

    /// Gives memory back if there are no calls and it is more than a few of them need.
    pub(crate) fn shrink(&mut self) {
        if self.slots.is_empty() && self.ended.is_empty() && self.slots_memory() > KEPT_BYTES_MAX {
            self.slots.shrink();
            self.deadlines.shrink();
            self.ended = Line::new();
            self.spare = Vec::new();
            self.spare_bytes = 0;
        }
    }

    /// An empty map, used before if there is one.
    pub(crate) fn take_map(&mut self) -> Box<MetadataMap> {
        let Some(map) = self.spare.pop() else { return Box::default() };
        self.spare_bytes -= map_bytes(&map);
        map
    }

    /// Takes a map back for reuse.
    pub(crate) fn give_map(&mut self, mut map: Box<MetadataMap>) {
        let bytes = map_bytes(&map);
        if bytes <= SPARE_BYTES_MAX - self.spare_bytes {
            map.clear();
            self.spare_bytes += bytes;
            self.spare.push(map);
        }
    }

    /// Swaps a map that a call has or has not into `into`, which is empty, so that its memory serves a later call.
    pub(crate) fn hand_map(&mut self, map: Option<Box<MetadataMap>>, into: &mut MetadataMap) {
        if let Some(mut map) = map {
            mem::swap(&mut *map, into);
            self.give_map(map);
        }
    }
}

/// Bytes of memory of a map in a box.
const fn map_bytes(map: &MetadataMap) -> usize {
    size_of::<MetadataMap>() + map.memory_bytes()
}

#[cfg(test)]
mod tests;
