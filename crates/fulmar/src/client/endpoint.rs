//! The client end of a connection: starts calls, and carries what arrives to their cells.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use fulmar_base::{Closed, Endpoint, Env, Input, Instant, TaskId};
use fulmar_grpc::{
    Body, CallKey, Client, ClientIdentity, Code, Event, MetadataMap, Start, StartError, Status,
};
use fulmar_http2::ErrorCode;
use fulmar_reactor::{ConnectionHandle, ConnectionKey};

use super::{ChannelSpec, PendingCall, Return, WaitingCalls};
use crate::call::cell::{CellState, RELEASE_BYTES_MIN};
use crate::call::{CallCell, CellShape};
use crate::counts::Counts;
use crate::error::TransportError;

mod resting;

/// How often a call that no connection has processed is given to another one (PROTOCOL "transparent retry": once, wire rule 49).
const ATTEMPTS_MAX: u32 = 2;

/// What there is to say of a server that has accepted a connection, and not more.
pub(crate) const NO_SETTINGS: &str = "the server did not send its HTTP/2 SETTINGS in time";

/// What there is to say of a call that the server has not let begin.
const NO_STREAM: &str =
    "the deadline passed while the call waited for a stream: the server takes no more at a time";

/// The task of the queue of calls that wait. Tasks of calls are their indices, which are far below it.
const QUEUE: TaskId = TaskId(u64::MAX);

/// A client's end of one connection.
pub(crate) struct ClientEndpoint {
    grpc: Client,
    spec: Arc<ChannelSpec>,
    /// By [`CallKey::index`].
    calls: Vec<Option<Call>>,
    /// One for each index, made when the index is first used.
    doors: Vec<Option<Waker>>,
    /// Makes the doors; None where the caller drives the connection itself.
    handle: Option<ConnectionHandle>,
    /// Calls that wait for the server's SETTINGS or for a stream to become free.
    waiting: WaitingCalls,
    /// Where calls go that this connection could not have processed.
    not_processed: Return,
    /// The server's SETTINGS must arrive by then; None once they have.
    ready_by: Option<Instant>,
    going_away: bool,
    /// A call has ended here that the connection carried to its end.
    carried: bool,
    /// Calls that went to the server without the connection, and that wait there. They count as its streams.
    direct: u32,
    /// What the connection has come to, once it is over.
    lost: Option<Box<TransportError>>,
    /// How long the server may be silent before it is asked.
    keepalive_time: Option<Duration>,
}

struct Call {
    key: CallKey,
    cell: Arc<CallCell>,
    /// The caller asks for nothing before the call is over.
    takes_one_reply: bool,
    /// The headers of the answer have arrived, and are not in the cell.
    has_headers: bool,
}

/// What a client's connection can be told.
pub(crate) enum Command {
    /// Begin a call.
    Start(PendingCall),
    /// Look into the cell of the call with this index: its caller drives this connection itself and has no door.
    Look(usize),
    /// A call has gone to the server without the connection, and waits there; see [`ClientEndpoint::takes_direct_calls`].
    DirectBegun,
    /// One of those has ended.
    DirectEnded,
    /// The channel is gone: close.
    Retire,
}

impl ClientEndpoint {
    /// `handle` gives the wakers of calls' slots, where callers have to be heard; `ready_by` bounds the wait for the server's SETTINGS.
    pub(crate) fn new(
        spec: Arc<ChannelSpec>,
        handle: Option<ConnectionHandle>,
        not_processed: Return,
        ready_by: Instant,
    ) -> Self {
        let config = spec.connection_config();
        let keepalive_time = config.http2.keepalive.map(|keepalive| keepalive.time);
        let identity =
            ClientIdentity { scheme: spec.security().scheme().into(), authority: spec.authority().into() };
        Self {
            grpc: Client::new(config, identity),
            keepalive_time,
            waiting: WaitingCalls::new(spec.config.waiting_calls_max, None),
            spec,
            calls: Vec::new(),
            doors: Vec::new(),
            handle,
            not_processed,
            ready_by: Some(ready_by),
            going_away: false,
            carried: false,
            direct: 0,
            lost: None,
        }
    }

    pub(crate) fn channel_id(&self) -> u64 {
        self.spec.id
    }

    /// What texts call the server.
    pub(crate) fn server_name(&self) -> &str {
        self.spec.name()
    }

    #[cfg(test)]
    pub(crate) fn calls(&self) -> usize {
        self.calls.iter().flatten().count()
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            streams: self.grpc.streams(),
            client_calls: self.calls.iter().flatten().count(),
            deadlines: self.grpc.deadlines(),
            ..self.waiting.counts()
        }
    }

    /// Whether new calls may be given to this connection.
    pub(crate) fn takes_calls(&self) -> bool {
        !self.going_away
    }

    /// Whether a call may go to the server without the connection: one that the connection would begin at once. The first one
    /// does not, so that the connection has carried a call.
    pub(crate) fn takes_direct_calls(&self) -> bool {
        self.carried
            && self.takes_calls()
            && self.is_ready()
            && self.waiting.is_empty()
            && self.grpc.has_slot()
    }

    /// The connection's key, if a reactor has it.
    fn key(&self) -> Option<ConnectionKey> {
        self.handle.as_ref().map(ConnectionHandle::key)
    }

    /// Whether the server's SETTINGS have arrived.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_by.is_none()
    }

    /// Calls that were never given to the connection, for the caller that drives it.
    pub(crate) fn take_returned(&mut self) -> Option<PendingCall> {
        match &mut self.not_processed {
            Return::Kept(calls) => calls.pop_front(),
            Return::ByLetter(_) => None,
        }
    }

    /// Lets go of calls that never began and that their caller has given up.
    pub(crate) fn forget_given_up(&mut self) {
        if !self.waiting.is_empty() {
            self.waiting.let_leave();
        }
        if let Return::Kept(calls) = &mut self.not_processed {
            calls.retain(|pending| !pending.cell().lock().cancelled);
        }
    }

    /// Calls that this connection, which has ended, never began.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = PendingCall> {
        std::iter::from_fn(|| Some(self.waiting.pop_front()?.0))
    }

    fn start(&mut self, env: &mut Env<'_>, pending: PendingCall) {
        if self.going_away {
            self.not_processed.give_back(self.spec.id, pending);
        } else if pending.is_probe() && self.is_ready() {
            pending.end(Status::default());
        } else if self.ready_by.is_some() || !self.waiting.is_empty() {
            self.wait(pending, env.now);
        } else if let Err(pending) = self.start_now(env, pending) {
            self.wait(pending, env.now);
        }
    }

    fn set_direct(&mut self, calls: u32) {
        self.direct = calls;
        self.grpc.set_calls_beside(calls);
    }

    fn wait(&mut self, pending: PendingCall, now: Instant) {
        let handle = &self.handle;
        self.waiting.hear_with(|| Some(handle.as_ref()?.waker(QUEUE)));
        self.waiting.push_back(pending, now);
    }

    /// Begins a call. Gives it back when it must wait for a stream.
    fn start_now(&mut self, env: &mut Env<'_>, pending: PendingCall) -> Result<(), PendingCall> {
        let mut state = pending.cell().lock();
        let ended = if pending.is_probe() {
            Some(Status::default())
        } else if state.cancelled {
            Some(Status::cancelled("the call was given up before it could be sent"))
        } else if state.deadline.is_some_and(|deadline| deadline <= env.now) {
            Some(Status::deadline_exceeded("the deadline passed before the call could be sent"))
        } else {
            None
        };
        if let Some(status) = ended {
            drop(state);
            pending.end(status);
            return Ok(());
        }
        let start = Start {
            path: &state.path,
            metadata: &state.metadata_out,
            timeout: state.deadline.map(|deadline| deadline.saturating_duration_since(env.now)),
            deadline: state.deadline,
            compression: &state.compression,
        };
        let whole = state.outbound_ended;
        let started = if !whole {
            self.grpc.start(env, start, None, false)
        } else if state.outbound.has_parts() {
            self.grpc.start(env, start, None, false).inspect(|&key| {
                // Parts stay in the cell too, should the call have to be repeated. The call's end is an event.
                let _ = self.grpc.send_framed_parts(env, key, state.outbound.parts());
                self.grpc.half_close(env, key);
            })
        } else {
            self.grpc.start_framed(env, start, state.outbound.as_slice(), true)
        };
        let key = match started {
            Ok(key) => key,
            Err(error) => {
                drop(state);
                return self.not_started(pending, &error);
            }
        };
        let index = key.index();
        self.reserve(index);
        state.set_window(self.spec.config.grpc.http2.stream_window_bytes);
        state.door.clone_from(&self.doors[index]);
        state.slot = Some(index);
        state.attempts += 1;
        state.half_closed = whole;
        state.repeatable = whole;
        state.inbound.give_used(env.pool);
        // The caller may have knocked where there was no door yet.
        let must_look = !whole || state.knocked;
        let takes_one_reply = state.shape == CellShape::OneReply;
        drop(state);
        self.calls[index] = Some(Call { key, cell: pending.take(), takes_one_reply, has_headers: false });
        if must_look {
            self.look(env, index);
        }
        Ok(())
    }

    /// Makes a place and a door for a call.
    fn reserve(&mut self, index: usize) {
        if self.calls.capacity() == 0 {
            // As a slab of one call: most connections never have two at a time.
            self.calls.reserve_exact(index + 1);
            self.doors.reserve_exact(index + 1);
        }
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, || None);
            self.doors.resize_with(index + 1, || None);
        }
        if self.doors[index].is_none() {
            self.doors[index] = self.handle.as_ref().map(|handle| handle.waker(TaskId(index as u64)));
        }
    }

    fn not_started(&mut self, pending: PendingCall, error: &StartError) -> Result<(), PendingCall> {
        match error {
            StartError::Busy => return Err(pending),
            StartError::GoingAway | StartError::Exhausted => {
                self.going_away = true;
                self.not_processed.tell_retiring(self.spec.id, self.key(), self.carried);
                self.not_processed.give_back(self.spec.id, pending);
            }
            StartError::InvalidPath => pending.end(Status::internal(error.to_string())),
            error => pending.end(Status::resource_exhausted(format!("the call cannot be sent: {error}"))),
        }
        Ok(())
    }

    /// Does what the caller left in its cell: sends, half-closes, credits, cancels.
    fn look(&mut self, env: &mut Env<'_>, index: usize) {
        let Some(Some(call)) = self.calls.get(index) else { return };
        let key = call.key;
        let mut state = call.cell.lock();
        state.knocked = false;
        if state.cancelled {
            state.inbound.discard();
            state.inbound.give_used(env.pool);
            drop(state);
            self.grpc.cancel(env, key);
            self.calls[index] = None;
            return;
        }
        if !state.half_closed {
            // An error means that the call is over; its Finished event brings the status.
            if state.outbound.has_parts() {
                state = call.cell.with_outbound(state, |outbound| {
                    let _ = self.grpc.send_framed_parts(env, key, outbound.parts());
                });
            } else if !state.outbound.is_empty() {
                let _ = self.grpc.send_framed_slice(env, key, state.outbound.as_slice());
                state.outbound.clear();
            }
            if state.outbound_ended {
                state.half_closed = true;
                self.grpc.half_close(env, key);
            }
        }
        if let Some(bytes) = state.take_releases() {
            self.grpc.release(env, key, bytes);
        }
        state.inbound.give_used(env.pool);
        state.room = self.grpc.may_send(key);
        let waker = if state.room > 0 { state.send_waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            crate::wake(waker);
        }
    }
}

/// What the engine reports.
impl ClientEndpoint {
    /// Handles everything that the engine has to say about `input`.
    fn drain(&mut self, env: &mut Env<'_>, input: &Input<'_>) -> Result<(), Closed> {
        while let Some(event) = self.grpc.next_event(env, input)? {
            self.on_event(env, event);
        }
        Ok(())
    }

    fn on_event(&mut self, env: &mut Env<'_>, event: Event<'_>) {
        match event {
            Event::Headers { call } => self.on_headers(call),
            Event::Message { call, body } => self.on_message(env, call, body),
            Event::Finished { call } => self.on_finished(call),
            Event::Writable { call } => self.look(env, call.index()),
            Event::Ready => {
                self.ready_by = None;
                self.not_processed.tell_ready(self.spec.id, self.key());
                self.start_waiting(env);
            }
            Event::Capacity => self.start_waiting(env),
            Event::GoingAway => {
                self.going_away = true;
                self.heed_too_many_pings();
                self.not_processed.tell_retiring(self.spec.id, self.key(), self.carried);
                self.give_waiting_back();
            }
            // Only a server's end begins calls and is half-closed.
            Event::Begin { .. } | Event::HalfClosed { .. } => {}
        }
    }

    /// Slows the next connections down if the server has said that it is asked too often.
    fn heed_too_many_pings(&self) {
        if let (Some(time), Some(last_word)) = (self.keepalive_time, self.grpc.going_away())
            && last_word.code == ErrorCode::EnhanceYourCalm
            && last_word.text == "too_many_pings"
        {
            self.spec.slow_keepalive_down(time);
        }
    }

    fn on_headers(&mut self, key: CallKey) {
        let Some(Some(call)) = self.calls.get_mut(key.index()) else { return };
        if call.takes_one_reply {
            // The message, or the end of the call, brings them along: the cell is locked once less.
            call.has_headers = true;
            return;
        }
        let mut state = call.cell.lock();
        take_headers(&mut self.grpc, key, &mut state);
        let is_wanted = state.shape == CellShape::EachMessage || state.metadata_wanted;
        let waker = if is_wanted { state.receive_waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            crate::wake(waker);
        }
    }

    fn on_message(&mut self, env: &mut Env<'_>, key: CallKey, body: Body<'_>) {
        let length = body.len();
        let Some(call) =
            self.calls.get_mut(key.index()).and_then(Option::as_mut).filter(|call| call.key == key)
        else {
            give_back(env, body);
            return self.grpc.release(env, key, length);
        };
        let mut state = call.cell.lock();
        if std::mem::take(&mut call.has_headers) {
            take_headers(&mut self.grpc, key, &mut state);
        }
        state.messages_in += 1;
        let is_one_too_many = state.shape.is_read_at_end() && state.messages_in > 1;
        if state.cancelled || is_one_too_many {
            drop(state);
            give_back(env, body);
            self.grpc.release(env, key, length);
            if is_one_too_many {
                self.refuse(env, key);
            }
            return;
        }
        let link = state.link.clone();
        state.inbound.push(body, self.grpc.was_compressed(key), env.pool);
        if state.shape.is_read_at_end() {
            // Nobody takes the reply of such a call before its end. A short one leaves the window as good as open, and goes with the
            // call: the engine need not hear of it.
            drop(state);
            link.received(length);
            if length >= RELEASE_BYTES_MIN {
                self.grpc.keep(env, key, length);
            }
            return;
        }
        let releases = state.take_releases();
        state.inbound.give_used(env.pool);
        let waker = state.receive_waker.take();
        drop(state);
        link.received(length);
        if let Some(bytes) = releases {
            self.grpc.release(env, key, bytes);
        }
        if let Some(waker) = waker {
            crate::wake(waker);
        }
    }

    /// Ends a call to whose one request the server answers with a stream, which might never end.
    fn refuse(&mut self, env: &mut Env<'_>, key: CallKey) {
        let Some(call) = self.calls.get_mut(key.index()).and_then(Option::take) else { return };
        self.grpc.cancel(env, key);
        let mut state = call.cell.lock();
        state.slot = None;
        let ended = state.end(Status::unimplemented(
            "the server answered with more than one message to a method that has one reply",
        ));
        drop(state);
        drop(call);
        ended.tell();
    }

    fn on_finished(&mut self, key: CallKey) {
        let Some(call) =
            self.calls.get_mut(key.index()).and_then(|call| call.take_if(|call| call.key == key))
        else {
            return;
        };
        let mut state = call.cell.lock();
        if call.has_headers {
            take_headers(&mut self.grpc, key, &mut state);
        }
        let status = self.grpc.take_status(key, &mut state.trailers_in);
        let is_untouched = !state.metadata_arrived && state.messages_in == 0;
        let may_repeat =
            state.repeatable && is_untouched && !state.cancelled && state.attempts < ATTEMPTS_MAX;
        if may_repeat && self.grpc.unprocessed(key) {
            state.half_closed = false;
            state.door = None;
            state.slot = None;
            drop(state);
            return self.not_processed.give_back(self.spec.id, PendingCall::call(call.cell));
        }
        state.slot = None;
        self.carried |= self.lost.is_none() && !self.grpc.unprocessed(key);
        let mut status = with_trailers(status, &state.trailers_in);
        if let Some(lost) = &self.lost
            && status.code() == Code::Unavailable
        {
            status = status.with_source(TransportError::clone(lost));
        }
        let ended = state.end(status);
        drop(state);
        // The caller may use the cell for its next call once nobody else holds it.
        drop(call);
        ended.tell();
    }

    fn start_waiting(&mut self, env: &mut Env<'_>) {
        if self.ready_by.is_some() {
            return;
        }
        while let Some((pending, since)) = self.waiting.pop_front() {
            if let Err(pending) = self.start_now(env, pending) {
                self.waiting.push_front(pending, since);
                return;
            }
        }
    }

    fn give_waiting_back(&mut self) {
        while let Some((pending, _)) = self.waiting.pop_front() {
            self.not_processed.give_back(self.spec.id, pending);
        }
    }
}

impl Endpoint for ClientEndpoint {
    type Command = Command;

    fn receive(&mut self, env: &mut Env<'_>, bytes: &[u8]) -> Result<usize, Closed> {
        if self.ready_by.is_some()
            && let Some(spoken) = not_http2(bytes)
        {
            return Err(Closed::peer(spoken));
        }
        let input = Input::new(bytes);
        self.drain(env, &input)?;
        Ok(input.consumed())
    }

    fn transmit(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        loop {
            self.grpc.transmit(env);
            if !self.grpc.has_events() {
                break;
            }
            self.drain(env, &Input::new(&[]))?;
        }
        // A caller that drives the connection itself replaces it before its next call, and need not wait for its end before.
        if self.grpc.is_drained() {
            return Err(Closed::local(format!(
                "the connection to {} had no calls for too long",
                self.spec.name()
            )));
        }
        if self.going_away && self.grpc.calls() == 0 && matches!(self.not_processed, Return::ByLetter(_)) {
            return Err(Closed::peer(format!("{} takes no more calls on this connection", self.spec.name())));
        }
        Ok(())
    }

    fn has_work(&self, is_room: bool) -> bool {
        self.grpc.has_work(is_room)
    }

    fn next_deadline(&self) -> Option<Instant> {
        [self.grpc.next_deadline(), self.ready_by, self.waiting.next_deadline()].into_iter().flatten().min()
    }

    fn on_deadline(&mut self, env: &mut Env<'_>) -> Result<(), Closed> {
        self.waiting.expire(env.now, |_| NO_STREAM.to_owned());
        if self.ready_by.is_some_and(|ready_by| ready_by <= env.now) {
            return Err(Closed::peer(NO_SETTINGS));
        }
        self.grpc.on_deadline(env)?;
        self.drain(env, &Input::new(&[]))
    }

    fn on_command(&mut self, env: &mut Env<'_>, command: Command) -> Result<(), Closed> {
        match command {
            Command::Start(pending) => self.start(env, pending),
            Command::Look(index) => self.look(env, index),
            Command::DirectBegun => self.set_direct(self.direct + 1),
            Command::DirectEnded => self.set_direct(self.direct.saturating_sub(1)),
            Command::Retire => return Err(Closed::local("the channel was dropped")),
        }
        Ok(())
    }

    fn on_wake(&mut self, env: &mut Env<'_>, task: TaskId) -> Result<(), Closed> {
        match task {
            QUEUE => self.waiting.let_leave(),
            TaskId(index) => self.look(env, index as usize),
        }
        Ok(())
    }

    fn on_close(&mut self, env: &mut Env<'_>, closed: &Closed) {
        self.going_away = true;
        self.heed_too_many_pings();
        self.lost = Some(Box::new(TransportError::new(self.spec.name(), closed)));
        let text = format!("{}: {}", self.spec.name(), closed.text);
        self.grpc.closed(env, &Closed { text: text.into(), ..closed.clone() });
        // The engine has no input any more: what it reports are the ends of its calls.
        let _ = self.drain(env, &Input::new(&[]));
        // A host takes what waits with the endpoint; a caller that drives the connection itself finds it here.
        if matches!(self.not_processed, Return::Kept(_)) {
            self.give_waiting_back();
        }
    }
}

/// How a call ends whose server has closed the connection, for a client that calls the server so.
pub(crate) fn hung_up(server: &str) -> Status {
    let closed = Closed::peer("the peer closed the connection").caused_by(io::ErrorKind::UnexpectedEof);
    let text = format!("connection lost: {server}: {}", closed.text);
    Status::unavailable(text).with_source(TransportError::new(server, &closed))
}

/// Puts what came ahead of the messages into the cell of the call.
fn take_headers(grpc: &mut Client, key: CallKey, state: &mut CellState) {
    grpc.take_metadata(key, &mut state.metadata_in);
    state.encoding_in = grpc.encoding(key).cloned();
    state.metadata_arrived = true;
}

fn give_back(env: &mut Env<'_>, body: Body<'_>) {
    if let Body::Block(block) = body {
        env.pool.give(block);
    }
}

/// A failure carries what the server sent with it.
pub(crate) fn with_trailers(status: Status, trailers: &MetadataMap) -> Status {
    if status.is_ok() || trailers.is_empty() { status } else { status.with_metadata(trailers.clone()) }
}

/// What a server speaks whose first bytes cannot be a frame of SETTINGS (RFC 9113 §3.4).
fn not_http2(first: &[u8]) -> Option<&'static str> {
    if first.starts_with(&[0x15, 0x03]) {
        // An alert (RFC 8446 §5.1), for what we sent was no hello.
        Some("the server speaks TLS and refuses plain text: an endpoint of it begins with https://")
    } else if first.starts_with(b"HTTP/1") {
        Some("the server answers in HTTP/1, not in HTTP/2; perhaps it wants TLS (https://), or it is a proxy")
    } else {
        None
    }
}
