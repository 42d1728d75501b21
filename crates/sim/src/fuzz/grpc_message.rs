//! One gRPC end, and an HTTP/2 peer that says what the data say.

mod peer;
mod runs;
mod subject;
mod talk;

use fulmar_base::Instant;
use std::time::Duration;

use self::peer::Peer;
use self::subject::Subject;
use self::talk::{Talk, Talks};
use super::bytes::Bytes;

/// Plays one connection of a gRPC [`Server`](fulmar_grpc::Server) or [`Client`](fulmar_grpc::Client) with a peer that is an
/// HTTP/2 engine without gRPC.
///
/// The first byte and a bit of the second choose the end and its limits, and the second is the seed of what its user does by itself;
/// then each operation is a byte and its operands: header blocks good and bad, messages and any other bytes in DATA frames split anywhere, resets, shutdowns,
/// time. What must hold:
///
/// - each call begins and ends exactly once, and only for a request that is one; nothing is said of a call before or after;
/// - messages come out as they went in, whole, in order, within the limits, compressed ones unfolded; what is no message, or is corrupt,
///   unfolds to too much or is compressed without an encoding, ends its call with the code for it;
/// - what the user sends arrives as it was sent, with the status that the user gave;
/// - every part of the end's memory stays within its bound;
/// - a client's status is the one in the trailers, if the answer was in order;
/// - nothing is stuck once all is delivered and taken, even messages that are larger than the window; when all is ended, all calls
///   are over; when the connection is lost, all calls are over too, and all blocks are back in the pool.
pub fn grpc_message(data: &[u8]) {
    let mut input = Bytes::new(data);
    let shape = Shape(input.byte() | input.byte() << 8);
    let mut play = Play::new(shape);
    while !input.is_empty() && !play.subject.lost {
        let operation = input.byte();
        play.operate(operation, &mut input);
    }
    play.end();
}

/// Bits that choose the end under test and its limits.
#[derive(Copy, Clone)]
struct Shape(usize);

impl Shape {
    const fn is_server(self) -> bool {
        self.0 & 0x01 == 0
    }

    const fn receive_message_bytes_max(self) -> usize {
        [4 << 20, 100, 0, 3_000][self.0 >> 1 & 0x03]
    }

    const fn send_message_bytes_max(self) -> usize {
        [usize::MAX, 50][self.0 >> 3 & 0x01]
    }

    const fn stream_window_bytes(self) -> u32 {
        [65_536, 10, 1_000, 1][self.0 >> 4 & 0x03]
    }

    /// The peer takes no header list above some 150 bytes.
    const fn short_lists(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// The peer releases what it gets only when everything is to be delivered.
    const fn slow_peer(self) -> bool {
        self.0 & 0x80 != 0
    }

    const fn held_bytes_max(self) -> usize {
        [64 << 20, 1_500][self.0 >> 15]
    }

    /// The end accepts an encoding.
    const fn unfolds(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// So little may be held that calls are ended for it.
    const fn holds_little(self) -> bool {
        self.held_bytes_max() < 64 << 20
    }

    const fn seed(self) -> u64 {
        self.0 as u64 >> 8
    }
}

struct Play {
    shape: Shape,
    subject: Subject,
    peer: Peer,
    talks: Talks,
    now: Instant,
}

impl Play {
    fn new(shape: Shape) -> Self {
        let now = Instant::from_nanos(1 << 40);
        Self { shape, subject: Subject::new(shape, now), peer: Peer::new(shape), talks: Talks::new(), now }
    }

    fn operate(&mut self, operation: usize, input: &mut Bytes<'_>) {
        let (peer, subject, talks) = (&mut self.peer, &mut self.subject, &mut self.talks);
        let flag = operation & 0x10 != 0;
        match operation & 0x0f {
            0 if peer.is_client() => peer.ask(talks, input.byte(), input.byte()),
            0 => peer.answer(talks, input.byte(), input.byte(), input.byte()),
            1 if flag => peer.queue_packed(talks, input.byte(), size(input.byte()), input.byte()),
            1 => peer.queue_message(talks, input.byte(), size(input.byte())),
            2 => peer.queue(talks, input.byte(), input.string()),
            3 => peer.flush(talks, input.byte(), size(input.byte()), flag),
            4 => peer.end(talks, input.byte(), input.byte()),
            5 => peer.reset(talks, input.byte(), flag),
            6 => self.deliver_to_subject(size(input.byte())),
            7 => self.deliver_to_subject(usize::MAX),
            8 => self.deliver_to_peer(),
            9 => self.pass_time(input.byte()),
            10 => subject.act(talks, input.byte()),
            11 => subject.release_all(talks),
            12 if subject.is_server() => subject.shut_down(),
            12 => subject.start(talks, input.byte(), size(input.byte())),
            13 if flag => peer.go_away(),
            13 => peer.ping(),
            14 => self.exchange(),
            _ if flag => subject.lose(talks),
            _ => subject.transmit(talks),
        }
    }

    fn deliver_to_subject(&mut self, bytes: usize) {
        let arrived = self.peer.take_output(bytes);
        self.subject.receive(&arrived, &mut self.talks);
    }

    fn deliver_to_peer(&mut self) {
        let arrived = self.subject.take_output();
        self.peer.receive(&arrived, &mut self.talks);
    }

    fn pass_time(&mut self, time: usize) {
        self.now = self.now + Duration::from_millis(4 * time as u64);
        self.subject.on_time(self.now, &mut self.talks);
    }

    /// Carries everything there and back until neither end has anything to say.
    fn exchange(&mut self) {
        loop {
            self.deliver_to_subject(usize::MAX);
            self.deliver_to_peer();
            if self.subject.lost || !self.peer.has_output() && !self.subject.has_output() {
                return;
            }
        }
    }

    /// The same, and both users take what they get.
    fn settle(&mut self) {
        loop {
            self.exchange();
            self.subject.release_all(&mut self.talks);
            let released = self.peer.release_all(&mut self.talks);
            if !released && !self.peer.has_output() && !self.subject.has_output() {
                return;
            }
        }
    }

    fn end(mut self) {
        if !self.subject.lost {
            self.settle();
            self.talks.values().for_each(|talk| self.check_open(talk));
            self.subject.finish_all(&mut self.talks);
            self.peer.end_all(&mut self.talks);
            self.settle();
            for (id, talk) in &self.talks {
                assert!(talk.call.is_none() || talk.is_over(), "the call on stream {id} has no end");
            }
            assert!(self.subject.lost || self.subject.calls() == 0, "calls without streams are left");
        }
        self.subject.lose(&mut self.talks);
        self.peer.close();
    }

    /// Whether unfinished messages are so many bytes that only one call gets credit.
    fn is_pressed(&self) -> bool {
        let open = self.talks.values().filter(|talk| talk.call.is_some() && !talk.is_over());
        let held = |talk: &Talk| talk.sent.len() - talk.taken - self.peer.waiting_bytes(talk);
        open.map(held).sum::<usize>() > self.shape.held_bytes_max()
    }

    /// Everything is delivered and taken: a call that goes on is only waiting for more.
    fn check_open(&self, talk: &Talk) {
        if self.subject.lost {
            return;
        }
        if self.subject.is_server() && talk.is_call && !talk.peer_over && talk.stream.is_some() {
            assert!(talk.call.is_some() || self.subject.shutting_down, "a request began no call: {talk:?}");
        }
        if talk.call.is_none() || talk.is_over() || talk.finish_asked {
            return;
        }
        if self.is_pressed() {
            return;
        }
        // What is behind the headers of no answer is no message.
        if talk.answer != talk::Answer::Bad {
            let next = talk.next_message(self.subject.receive_message_bytes_max());
            assert_eq!(next, talk::Next::Incomplete, "a message or a fault was kept back");
        }
        assert_eq!(self.peer.waiting_bytes(talk), 0, "DATA is stuck");
        if talk.peer_ended {
            assert!(self.subject.is_server(), "the answer has ended, the call has not");
            assert!(talk.half_closed && talk.taken == talk.sent.len(), "the end of the request was not told");
        }
    }
}

/// Up to 127 as it is, and then in steps of 64.
const fn size(byte: usize) -> usize {
    if byte < 128 { byte } else { (byte - 127) * 64 }
}
