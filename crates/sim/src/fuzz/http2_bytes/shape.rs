use fulmar_http2::{Config, Role};

use super::super::bytes::Bytes;
use crate::wire;

/// Bits that choose what a run is like.
#[derive(Copy, Clone)]
pub(super) struct Shape(pub(super) usize);

/// How long the pieces are in which the wire arrives.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Chunking {
    Whole,
    Bytewise,
    Small,
    Large,
}

impl Shape {
    /// Bits 0 and 1.
    pub(super) const fn chunking(self) -> Chunking {
        match self.0 & 0x03 {
            0 => Chunking::Whole,
            1 => Chunking::Bytewise,
            2 => Chunking::Small,
            _ => Chunking::Large,
        }
    }

    /// Bit 2: a good preface stands in front of the data.
    pub(super) const fn preface_given(self) -> bool {
        self.0 & 0x04 != 0
    }

    /// Bit 3: the data are frames in short: type, flags, stream, and length each take a byte.
    pub(super) const fn framed(self) -> bool {
        self.0 & 0x08 != 0
    }

    /// Bit 4: the user releases what arrives and does nothing else.
    pub(super) const fn listens(self) -> bool {
        self.0 & 0x10 != 0
    }

    /// Bit 5: every limit is so low that a few frames cross it.
    pub(super) const fn narrow(self) -> bool {
        self.0 & 0x20 != 0
    }

    /// Bit 6: the peer does not read.
    pub(super) const fn deaf(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// Bit 7: time passes, unless the user listens.
    pub(super) const fn timed(self) -> bool {
        self.0 & 0x80 != 0
    }

    pub(super) fn config(self) -> Config {
        let wide = Config { surrounding_whitespace_allowed: self.timed(), ..Config::default() };
        if !self.narrow() {
            return wide;
        }
        Config {
            streams_max: 3,
            streams_assumed: 3,
            stream_window_bytes: 100,
            window_bytes_max: 300,
            header_table_bytes_max: 200,
            header_list_bytes_max: 400,
            header_fields_max: 8,
            header_block_bytes_max: 300,
            continuations_max: 2,
            send_queue_bytes_max: 1_000,
            // A listener's output would reach it sooner or later, as the wire is cut.
            output_bytes_max: if self.listens() { wide.output_bytes_max } else { 2_000 },
            settings_entries_max: 3,
            resets_received_budget: 4,
            resets_provoked_budget: 4,
            pings_budget: 4,
            settings_budget: 4,
            empty_data_budget: 4,
            tiny_data_budget: 6,
            window_updates_budget: 6,
            stalled_bytes_max: 3_000,
            queued_bytes_max: 6_000,
            ignored_frames_budget: 6,
            ..wide
        }
    }

    pub(super) fn wire(self, role: Role, mut input: Bytes<'_>) -> Vec<u8> {
        let mut wire = Vec::new();
        if self.preface_given() {
            if role == Role::Server {
                wire.extend_from_slice(wire::PREFACE);
            }
            wire::write((wire::SETTINGS, 0, 0), 0, &[], &mut wire);
            wire::write((wire::SETTINGS, wire::ACK, 0), 0, &[], &mut wire);
        }
        if !self.framed() {
            wire.extend_from_slice(input.take(usize::MAX));
        }
        while !input.is_empty() {
            let head = (input.byte() as u8, input.byte() as u8, input.byte() as u32);
            match input.byte() {
                255 => {
                    let length = input.byte() << 8 | input.byte();
                    wire::write(head, length, input.take(length), &mut wire);
                }
                254 => {
                    let zeros = vec![0; input.byte() * 128];
                    wire::write(head, zeros.len(), &zeros, &mut wire);
                }
                length => wire::write(head, length, input.take(length), &mut wire),
            }
        }
        wire
    }
}
