//! What a server does with what it receives.

use std::sync::Arc;

use fulmar_base::{Env, Input, Instant};
use fulmar_http2::{ErrorCode, Event as StreamEvent, StreamKey};

use super::Server;
use crate::call::{Call, CallKey, Ending, Inbound, NewCall, Outbound};
use crate::encoding::Compression;
use crate::end::Piece;
use crate::event::Event;
use crate::headers::{self, Refusal, Request};
use crate::metadata::MetadataMap;

/// What is written into a stream of which nothing is known yet. No key of a call is this number.
const NEW: u64 = 0;

/// What is written into a stream that was answered at once. No call has this key.
const REFUSED: u64 = u64::MAX;

impl Server {
    pub(super) fn on_stream_event<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        event: StreamEvent<'i>,
    ) -> Option<Event<'i>> {
        match event {
            StreamEvent::Headers { stream, end } => {
                if self.end.connection.user(stream) == Some(NEW) {
                    return self.begin(env, input, stream, end);
                }
                // Trailers of a request: gRPC gives them no meaning besides the end.
                self.end.on_data(input, stream, &[], end);
                None
            }
            StreamEvent::Data { stream, bytes, end } => {
                self.end.on_data(input, stream, bytes, end);
                None
            }
            StreamEvent::Reset { stream, user, code, .. } => {
                let call = self.end.calls.with_user(stream, user)?;
                self.ending =
                    self.end.calls.get(call).map_or(Ending::Answered, |slot| reset_by(slot, code, env.now));
                self.end.calls.remove(env.pool, call);
                Some(Event::Finished { call })
            }
            StreamEvent::Closed { stream, user } => {
                let call = self.end.calls.with_user(stream, user)?;
                self.ending = Ending::Answered;
                self.end.calls.remove(env.pool, call);
                Some(Event::Finished { call })
            }
            StreamEvent::Writable { stream } => {
                let call = self.call_on(stream)?;
                let slot = self.end.calls.get(call)?;
                (slot.outbound != Outbound::Ended).then_some(Event::Writable { call })
            }
            // A client's GOAWAY says that it takes no pushes, and there are none.
            StreamEvent::GoAway { .. }
            | StreamEvent::Pong { .. }
            | StreamEvent::Ready
            | StreamEvent::StreamSlotFree => None,
        }
    }

    pub(super) fn on_piece<'i>(&mut self, env: &mut Env<'_>, piece: Piece<'i>) -> Option<Event<'i>> {
        match piece {
            Piece::Message { call, body } => Some(Event::Message { call, body }),
            Piece::End { call } => {
                self.end.calls.get_mut(call)?.inbound = Inbound::Ended;
                Some(Event::HalfClosed { call })
            }
            Piece::Fault { call, status } => {
                self.fail(env, call, &status);
                None
            }
            Piece::Exhausted { call, status } => {
                self.end.drop_waiting(env, call);
                self.fail(env, call, &status);
                None
            }
        }
    }

    /// A request has arrived: it begins a call, or is answered at once.
    fn begin<'i>(
        &mut self,
        env: &mut Env<'_>,
        input: &Input<'i>,
        stream: StreamKey,
        end: bool,
    ) -> Option<Event<'i>> {
        if self.end.is_pressed(env.pool) {
            self.end.connection.reset(env, stream, ErrorCode::RefusedStream);
            return None;
        }
        let (mut metadata, mut shared) = (None::<Box<MetadataMap>>, None);
        let read = match self.read_before() {
            Some((request, map)) => {
                shared = map;
                Ok(request)
            }
            None => {
                let map = metadata.insert(self.end.calls.take_map());
                self.read_request(map)
            }
        };
        let admitted = read.and_then(|request| {
            let metadata = shared.as_deref().or(metadata.as_deref()).unwrap_or(MetadataMap::EMPTY);
            self.ask(&request, metadata).map(|()| request)
        });
        let request = match admitted {
            Ok(request) => request,
            Err(refusal) => {
                if let Some(metadata) = metadata {
                    self.end.calls.give_map(metadata);
                }
                self.end.connection.set_user(stream, REFUSED);
                self.refuse(env, stream, end, &refusal);
                return None;
            }
        };
        let deadline = request.timeout.map(|timeout| env.now.saturating_add(timeout));
        // The default is never an encoding that is not there.
        let sends =
            self.end.encodings.choose(&Compression::Default, request.peer_accepts).unwrap_or_default();
        let new = NewCall {
            stream,
            inbound: Inbound::Messages,
            outbound: Outbound::Headers,
            deadline,
            metadata,
            shared_metadata: shared,
            encoding: request.encoding,
            sends,
            peer_accepts: request.peer_accepts,
        };
        let call = self.end.calls.insert(&mut self.end.connection, new);
        if end {
            self.end.on_data(input, stream, &[], true);
        }
        Some(Event::Begin { call, method: request.method, deadline })
    }

    /// What the header section in hand asks for, if it was read before.
    #[inline]
    fn read_before(&self) -> Option<(Request, Option<Arc<MetadataMap>>)> {
        let (request, metadata) = self.readings.share(self.end.connection.known_section()?)?;
        Some((*request, (!metadata.is_empty()).then(|| metadata.clone())))
    }

    /// What the header section in hand asks for.
    fn read_request(&mut self, metadata: &mut MetadataMap) -> Result<Request, Refusal> {
        let known = self.end.connection.known_section();
        let fields = self.end.connection.fields();
        let (routes, encodings) = (&self.routes, &self.end.encodings);
        let request = headers::read_request(fields, routes, &self.content_subtype, encodings, metadata)?;
        if let Some(section) = known {
            self.readings.keep(section, request, metadata);
        }
        Ok(request)
    }

    fn call_on(&self, stream: StreamKey) -> Option<CallKey> {
        self.end.calls.on_stream(&self.end.connection, stream)
    }
}

/// What a RST_STREAM with this code, from either end, says of a call.
fn reset_by(call: &Call, code: ErrorCode, now: Instant) -> Ending {
    match code {
        _ if call.outbound == Outbound::Ended => Ending::Answered,
        _ if call.deadline.is_some_and(|deadline| deadline <= now) => Ending::DeadlineExceeded,
        ErrorCode::Cancel | ErrorCode::NoError | ErrorCode::RefusedStream => Ending::Cancelled,
        _ => Ending::Failed,
    }
}
