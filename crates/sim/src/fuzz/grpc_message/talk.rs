use std::collections::{BTreeMap, VecDeque};

use super::runs;
use fulmar_base::Instant;
use fulmar_grpc::{CallKey, Code};
use fulmar_http2::StreamKey;

/// The calls of a connection by their stream ids, as far as both ends know them.
pub(super) type Talks = BTreeMap<u32, Talk>;

/// One call, or a stream that should not become one.
#[derive(Default, Debug)]
pub(super) struct Talk {
    /// The stream at the peer, once it knows of it.
    pub(super) stream: Option<StreamKey>,
    /// Server under test: whether the request is a call.
    pub(super) is_call: bool,
    /// Which method it asks for.
    pub(super) method: u32,

    /// The peer says that its messages may be compressed.
    pub(super) packed: bool,

    /// What the peer's user has written and not sent yet, what was sent, and how much of that came out in messages.
    pub(super) queued: Vec<u8>,
    pub(super) sent: Vec<u8>,
    pub(super) taken: usize,
    pub(super) peer_ended: bool,
    pub(super) peer_over: bool,
    /// The peer has reset it.
    pub(super) peer_reset: bool,
    /// Client under test: what the header section of the answer was, and the code in good trailers.
    pub(super) answer: Answer,
    pub(super) verdict: Option<Code>,

    /// The call, once it has begun.
    pub(super) call: Option<CallKey>,
    pub(super) deadline: Option<Instant>,
    pub(super) half_closed: bool,
    pub(super) finished: bool,
    pub(super) cancelled: bool,
    /// Lengths of messages that are not released.
    pub(super) held: VecDeque<usize>,

    /// The messages that the user has sent, with their prefixes, and how many bytes of that have arrived.
    pub(super) said: Vec<u8>,
    pub(super) heard: usize,
    /// A message was not what it was announced to be, or too long to be sent: the call ends for that.
    pub(super) garbled: bool,
    /// Server under test: the user has ended the answer, with this status if it went well.
    pub(super) finish_asked: bool,
    pub(super) status: Option<Code>,
}

/// What a client has to think of the header section of an answer.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(super) enum Answer {
    #[default]
    None,
    Good,
    Bad,
}

/// What stands next in the bytes that a peer has sent.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// A message, unfolded if it is compressed, and where it ends.
    Message(Vec<u8>, usize),
    Incomplete,
    /// No message; the call ends with this code.
    Fault(Code),
}

impl Talk {
    pub(super) const fn is_over(&self) -> bool {
        self.finished || self.cancelled
    }

    /// The rules of `PROTOCOL-HTTP2.md` for a Length-Prefixed-Message. A compressed one may be a little longer than what it unfolds to.
    pub(super) fn next_message(&self, message_bytes_max: usize) -> Next {
        let Some((&[flag, a, b, c, d], rest)) = self.sent[self.taken..].split_first_chunk() else {
            return Next::Incomplete;
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        let end = self.taken + 5 + length;
        let length_max = match flag {
            0 => message_bytes_max,
            1 if self.packed => message_bytes_max + message_bytes_max / 256 + 1024,
            _ => return Next::Fault(Code::Internal),
        };
        if length > length_max {
            return Next::Fault(Code::ResourceExhausted);
        }
        let Some(message) = rest.get(..length) else { return Next::Incomplete };
        if flag == 0 {
            return Next::Message(message.to_vec(), end);
        }
        match runs::unfold(message, message_bytes_max) {
            Ok(unfolded) => Next::Message(unfolded, end),
            Err(code) => Next::Fault(code),
        }
    }

    /// Whether the peer has given a reason to end the call.
    pub(super) fn is_faulty(&self, message_bytes_max: usize) -> bool {
        let truncated = self.peer_ended && self.taken < self.sent.len();
        let fault = matches!(self.next_message(message_bytes_max), Next::Fault(_));
        self.peer_reset || self.answer == Answer::Bad || truncated || fault
    }

    /// The user has sent a message.
    pub(super) fn say(&mut self, message: &[u8]) {
        self.said.extend_from_slice(&frame(message));
    }

    /// DATA of the end under test has arrived.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let expected = self.said.get(self.heard..self.heard + bytes.len());
        assert!(self.garbled || expected == Some(bytes), "not what was sent arrives");
        self.heard += bytes.len();
    }

    /// Whether all messages that were sent have arrived.
    pub(super) fn check_all_heard(&self) {
        assert!(self.garbled || self.heard == self.said.len(), "the status overtakes a message");
    }
}

/// A message behind its prefix.
pub(super) fn frame(message: &[u8]) -> Vec<u8> {
    let mut framed = vec![0];
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.extend_from_slice(message);
    framed
}
