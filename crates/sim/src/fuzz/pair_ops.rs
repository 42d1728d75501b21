//! Two HTTP/2 engines joined by a link, and two users who do what the data say.

mod end;
mod talk;

use fulmar_base::Instant;
use fulmar_http2::{Config, ErrorCode, Role};
use std::time::Duration;

use self::end::End;
use super::bytes::Bytes;

/// Plays a conversation: three bytes choose what each of the two ends is like, and each operation is a byte and its operands.
///
/// The high bit of that byte says whose user acts, the low four say what is done, and the others how. What must hold:
///
/// - no error between two engines, but that of a deadline that was let pass;
/// - header sections and content arrive as they were sent, in order, none twice, and none lost unless the stream was reset;
/// - a stream ends exactly once at either end, and events stand in an order that its state allows;
/// - both directions of the wire stand before a referee;
/// - once everything is delivered and released, nothing is stuck: every sender that had to wait may go on, every stream that is
///   ended by both users ends, every ping is answered, an end that drains is drained, and a client that waits for a stream gets one;
/// - after closing, all blocks are back in the pools.
pub fn pair_ops(data: &[u8]) {
    let mut input = Bytes::new(data);
    let mut pair = Pair::new(config(&mut input), config(&mut input));
    while !input.is_empty() && !pair.is_over() {
        let operation = input.byte();
        pair.operate(operation, &mut input);
    }
    pair.end();
}

struct Pair {
    client: End,
    server: End,
    now: Instant,
}

impl Pair {
    fn new(client: Config, server: Config) -> Self {
        // So little that a window of one byte does not take for ever.
        let narrowest = client.stream_window_bytes.min(server.stream_window_bytes) as usize;
        let content_bytes_max = narrowest.saturating_mul(30).min(1 << 20);
        Self {
            client: End::new(Role::Client, client, content_bytes_max),
            server: End::new(Role::Server, server, content_bytes_max),
            now: Instant::from_nanos(1 << 40),
        }
    }

    fn operate(&mut self, operation: usize, input: &mut Bytes<'_>) {
        let (one, two, three) = (operation & 0x10 != 0, operation & 0x20 != 0, operation & 0x40 != 0);
        let by_client = operation & 0x80 == 0;
        let end = if by_client { &mut self.client } else { &mut self.server };
        match operation & 0x0f {
            0 if by_client => end.open(input.byte(), one, two),
            0 | 1 => end.send_headers(input.byte(), input.byte(), one, two),
            2 | 3 => {
                end.send(input.byte(), size(input.byte()), one, usize::from(two) * 2 + usize::from(three))
            }
            4 => end.release(input.byte(), size(input.byte())),
            5 => end.reset(input.byte(), [ErrorCode::Cancel, ErrorCode::NoError][usize::from(one)]),
            6 => end.reset_after_end(input.byte()),
            7 => end.ping(),
            8 if one => end.go_away(),
            8 => end.drain(),
            9 => self.pass_time(input.byte()),
            10 => end.transmit(),
            11 | 12 => drop(self.deliver(by_client, size(input.byte()))),
            13 => drop(self.deliver(by_client, usize::MAX)),
            14 => self.exchange(),
            _ => drop(end.release_all()),
        }
    }

    /// Time passes at both ends.
    fn pass_time(&mut self, time: usize) {
        self.now = self.now + Duration::from_millis(4 * time as u64);
        self.client.on_time(self.now);
        self.server.on_time(self.now);
    }

    /// Carries what one end has written to the other, at most so many bytes.
    fn deliver(&mut self, from_client: bool, bytes: usize) -> bool {
        let (from, to) = match from_client {
            true => (&mut self.client, &mut self.server),
            false => (&mut self.server, &mut self.client),
        };
        let arrived = from.take_output(bytes);
        if !arrived.is_empty() {
            to.receive(&arrived, from.talks());
        }
        !arrived.is_empty()
    }

    /// Carries everything there and back until neither end has anything to say.
    fn exchange(&mut self) {
        self.client.receive(&[], self.server.talks());
        self.server.receive(&[], self.client.talks());
        while self.deliver(true, usize::MAX) | self.deliver(false, usize::MAX) {}
    }

    /// Whether an end has let a deadline pass, and the connection with it.
    fn is_over(&self) -> bool {
        self.client.failed || self.server.failed
    }

    fn end(mut self) {
        if !self.is_over() {
            self.release_everything();
            self.client.check_senders();
            self.server.check_senders();
            self.end_everything();
            self.client.check_at_rest(&self.server);
            self.server.check_at_rest(&self.client);
        }
        self.client.close();
        self.server.close();
    }

    fn release_everything(&mut self) {
        loop {
            self.exchange();
            if !(self.client.release_all() | self.server.release_all()) {
                return;
            }
        }
    }

    fn end_everything(&mut self) {
        loop {
            self.release_everything();
            if !(self.client.end_all() | self.server.end_all()) {
                return;
            }
        }
    }
}

/// What an end is like, chosen by two bytes. Budgets are out of reach: no user here means harm.
fn config(input: &mut Bytes<'_>) -> Config {
    const NO_BUDGET: u32 = 1 << 30;
    let (windows, rest) = (input.byte(), input.byte());
    Config {
        stream_window_bytes: [65_536, 1, 7, 100, 1_000, 16_384, 65_535, 1 << 20][windows & 0x07],
        connection_window_bytes: [1 << 20, 65_535, 100_000, (1 << 31) - 1][windows >> 3 & 0x03],
        window_bytes_max: [16 << 20, 0][windows >> 7 & 0x01],
        frame_bytes_max: [16_384, 40_000][windows >> 5 & 0x01],
        send_queue_bytes_max: [65_536, 10][windows >> 6 & 0x01],
        streams_max: [1_000, 1, 2, 8][rest & 0x03],
        streams_assumed: [100, 1, 3, 10][rest >> 2 & 0x03],
        header_table_bytes_max: [4_096, 0, 100, 1_000][rest >> 4 & 0x03],
        header_list_bytes_max: [16_384, 250][rest >> 6 & 0x01],
        output_bytes_max: 1 << 30,
        resets_received_budget: NO_BUDGET,
        resets_provoked_budget: NO_BUDGET,
        pings_budget: NO_BUDGET,
        empty_data_budget: NO_BUDGET,
        tiny_data_budget: NO_BUDGET,
        window_updates_budget: NO_BUDGET,
        ignored_frames_budget: NO_BUDGET,
        ..Config::default()
    }
}

/// Up to 127 as it is, and then in steps of 512.
const fn size(byte: usize) -> usize {
    if byte < 128 { byte } else { (byte - 127) * 512 }
}
