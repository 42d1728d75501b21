//! What a handler answers to a caller in the same process.

use std::sync::Arc;

use bytes::Bytes;
use fulmar_base::{Output, Pool};
use fulmar_grpc::{Body, Code, Compression, Config, MetadataMap, Status, direct};

use crate::call::{CallCell, HEAD_LEN, Outbound};
use crate::client::endpoint::with_trailers;
use crate::packing::{Packing, Press};
use crate::panics::caught;
use crate::payload::{PREFIX_LEN, Payload};
use crate::response::Response;
use crate::server::method::{HANDLER, large_parts};
use crate::trace::CallSpan;

/// The answer to one call as its client gets it; its memory serves one call after the other.
#[derive(Default)]
pub(crate) struct DirectAnswer {
    /// Headers went ahead, so that the status is not the whole answer.
    has_headers: bool,
    metadata: MetadataMap,
    message: Message,
    /// What a small message was encoded into, behind room for its head in the caller's queue.
    bytes: Vec<u8>,
    status: Status,
    trailers: MetadataMap,
}

/// The one message of an answer.
#[derive(Debug, Default)]
enum Message {
    #[default]
    None,
    /// In `bytes`.
    Small,
    Large(Bytes),
}

impl DirectAnswer {
    /// Ends the call with a status.
    pub(crate) fn finish(&mut self, status: &Status, trailers: &MetadataMap, configs: (&Config, &Config)) {
        self.trailers.clear();
        self.status = direct::answer_end(status, trailers, !self.has_headers, configs, &mut self.trailers);
    }

    /// Ends the call with a response, in the order in which it would be sent. Returns the code that the server sees it end with.
    ///
    /// # Errors
    /// A status that the call has to end with, of which interceptors are to hear.
    pub(crate) fn reply<Resp: Payload>(
        &mut self,
        response: &Response<Resp>,
        span: &CallSpan,
        configs: (&Config, &Config),
        pool: &mut Pool,
    ) -> Result<Code, Status> {
        let (server, client) = configs;
        if !matches!(response.compression(), Compression::Default) {
            // The client accepts no encoding, but one that the server does not know is an error all the same.
            let press = Press::new(&server.encodings);
            Packing::new(press.as_ref(), fulmar_grpc::encoding::PeerAccepts::default(), None)
                .set(response.compression(), false)?;
        }
        let message = response.get_ref();
        let length = message.encoded_len();
        let encoded = if length >= Output::SHARED_MIN {
            let (head, body) = large_parts(message, length, server.send_message_bytes_max, pool)?;
            span.link().sent(length);
            Message::Large(if head.is_some() { body } else { body.slice(PREFIX_LEN..) })
        } else {
            span.link().sent(length);
            if let Err(status) = direct::check_sent(length, server) {
                self.finish(&status, MetadataMap::EMPTY, configs);
                return Ok(Code::ResourceExhausted);
            }
            Message::Small
        };
        self.metadata.clear();
        if let Err(status) = direct::answer_metadata(response.metadata(), server, client, &mut self.metadata)
        {
            self.metadata.clear();
            self.finish(&status, MetadataMap::EMPTY, configs);
            return Ok(Code::ResourceExhausted);
        }
        self.has_headers = true;
        let is_whole = !matches!(encoded, Message::Small) || self.encode(message, length);
        let taken = direct::check_received(length, client);
        if taken.is_ok() {
            // One that did not encode to its length has gone out, cut to it, by the time that this is known.
            self.message = encoded;
        }
        match (taken, is_whole) {
            (Err(status), _) => self.status = status,
            (Ok(()), true) => self.finish(&Status::default(), response.trailers(), configs),
            (Ok(()), false) => self.status = direct::reset_by_server(),
        }
        Ok(if is_whole { Code::Ok } else { Code::Internal })
    }

    /// Whether the message encoded to its length, which it has behind this in any case.
    fn encode<Resp: Payload>(&mut self, message: &Resp, length: usize) -> bool {
        self.bytes.clear();
        self.bytes.reserve(HEAD_LEN + length);
        self.bytes.extend_from_slice(&[0; HEAD_LEN]);
        let bytes = &mut self.bytes;
        let is_encoded = caught(HANDLER, || message.encode(bytes)).is_ok();
        let is_whole = is_encoded && self.bytes.len() == HEAD_LEN + length;
        self.bytes.resize(HEAD_LEN + length, 0);
        is_whole
    }

    /// Gives the answer to the caller of the call, together with the memory of its request, and makes ready for the next one.
    pub(super) fn give(&mut self, pool: &mut Pool, cell: Arc<CallCell>, request: Option<Outbound>) {
        let status = std::mem::take(&mut self.status);
        let message = std::mem::take(&mut self.message);
        let has_headers = std::mem::take(&mut self.has_headers);
        let mut state = cell.lock();
        if let Some(request) = request {
            state.outbound = request;
        }
        if has_headers {
            state.metadata_arrived = true;
            if !self.metadata.is_empty() {
                std::mem::swap(&mut state.metadata_in, &mut self.metadata);
            }
        }
        let mut status = status;
        if !self.trailers.is_empty() {
            std::mem::swap(&mut state.trailers_in, &mut self.trailers);
            status = with_trailers(status, &state.trailers_in);
        }
        let length = match message {
            Message::None => None,
            Message::Small => {
                let length = self.bytes.len() - HEAD_LEN;
                state.inbound.push_behind_head(&mut self.bytes);
                Some(length)
            }
            Message::Large(bytes) => {
                let length = bytes.len();
                state.inbound.push(Body::Shared(bytes), false, pool);
                Some(length)
            }
        };
        state.messages_in = usize::from(length.is_some());
        if let Some(length) = length
            && !state.link.is_none()
        {
            // Telling is a subscriber's code.
            let link = state.link.clone();
            drop(state);
            link.received(length);
            state = cell.lock();
        }
        let ended = state.end(status);
        drop(state);
        // The caller may use the cell for its next call once nobody else holds it.
        drop(cell);
        self.metadata.clear();
        self.trailers.clear();
        ended.tell();
    }
}
