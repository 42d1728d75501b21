use fulmar_hpack::DecodeLimits;

use crate::pulse::{Ages, Keepalive, PingPolicy};

/// What an end of a connection allows, advertises and waits for. Every limit of the engine is here.
///
/// The budgets (`…_budget`) are counts that a well-behaved peer never uses up: each is full at the start, fills itself again
/// within [`budget_refill_ms`](Self::budget_refill_ms), and some are earned back by useful work. A peer that uses one up gets
/// GOAWAY with ENHANCE_YOUR_CALM and the name of the limit (RFC 9113 §10.5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// How many streams may be open at once. Server: what it tells its client (SETTINGS_MAX_CONCURRENT_STREAMS); further ones are
    /// refused with REFUSED_STREAM. Client: the most that it opens, even where the server allows more. Default 1,000.
    pub streams_max: u32,
    /// Client: how many streams are opened before the server's SETTINGS have said how many it takes. Default 100, what RFC 9113
    /// §6.5.2 recommends servers to allow at least.
    pub streams_assumed: u32,
    /// Client: the highest stream id. After it [`open`](crate::Connection::open) says
    /// [`Exhausted`](crate::OpenError::Exhausted), and further requests need another connection (RFC 9113 §5.1.1). At most 2^31-1,
    /// cut to that. Default three quarters of it, so that no two ends argue about the last ones.
    pub stream_id_max: u32,
    /// Receive window of each stream in bytes (SETTINGS_INITIAL_WINDOW_SIZE), and so the most bytes that the peer can have sent
    /// on a stream before the application took them. It is where a stream begins: see
    /// [`window_bytes_max`](Self::window_bytes_max). 1 to 2^31-1, cut to that. Default 64 KiB.
    pub stream_window_bytes: u32,
    /// Receive window of the connection in bytes, to begin with. Its credit never waits for the application. 65,535 (where the
    /// protocol begins) to 2^31-1, cut to that. Default 1 MiB.
    pub connection_window_bytes: u32,
    /// How far windows grow where that makes transfers faster, in bytes. While a window is near full, the engine measures how many
    /// bytes arrive in a round trip, by a PING of its own, and doubles the window if two thirds of it or more do. The
    /// window of a stream grows only while its application takes what arrives; no window shrinks. 0 switches this off, and
    /// leaves windows at the sizes above; a size above this stays as it is. At most 2^30, cut to that. Default 16 MiB.
    pub window_bytes_max: u32,
    /// The largest frame payload taken from the peer in bytes (SETTINGS_MAX_FRAME_SIZE). 16,384 to 2^24-1, cut to that. Default
    /// 16,384: the caller keeps at most one partial frame.
    pub frame_bytes_max: u32,
    /// The largest frame payload sent in bytes, if the peer takes that much. At least 16,384. Default 64 KiB.
    pub frame_bytes_sent_max: u32,
    /// Size of the peer's compression table in bytes (SETTINGS_HEADER_TABLE_SIZE), and the most of ours. Default 4,096.
    pub header_table_bytes_max: u32,
    /// The largest header list taken from the peer: names, values and 32 bytes a field (SETTINGS_MAX_HEADER_LIST_SIZE). A server
    /// answers a larger request with status 431
    /// ([`answer_too_large_with`](crate::Connection::answer_too_large_with)); any other larger list ends its stream. Whoever
    /// raises it above [`header_block_bytes_max`](Self::header_block_bytes_max) raises that too. Default 16 KiB.
    pub header_list_bytes_max: u32,
    /// The most fields in a header list; more is treated like a list that is too large. Default 256.
    pub header_fields_max: u32,
    /// The largest encoded header block, HEADERS and CONTINUATION frames together, in bytes. Above it the connection ends, as the
    /// compression table cannot be kept in step without reading it. Default 64 KiB.
    pub header_block_bytes_max: u32,
    /// The most CONTINUATION frames behind a HEADERS frame. Default 64.
    pub continuations_max: u32,
    /// How long a header block may take from its HEADERS frame to END_HEADERS, in milliseconds. Default 10,000.
    pub header_block_ms: u32,
    /// Whether a field value may start or end with a space or tab, although RFC 9113 §8.2.1 calls that malformed. Default false.
    pub surrounding_whitespace_allowed: bool,
    /// How many bytes the upper layer should let wait on a stream that may not send:
    /// [`Connection::may_queue`](crate::Connection::may_queue) counts down from it. Default 64 KiB.
    pub send_queue_bytes_max: usize,
    /// The most output that may wait on a peer that does not read, in bytes; above it the connection ends as soon as the peer
    /// sends anything, a client opens no more streams, and interim responses are left out. What remains is bounded by the streams
    /// that are open: a header section, trailers and a reset of each. Default 2 MiB, eight times what DATA alone may fill.
    pub output_bytes_max: usize,
    /// The most entries in one SETTINGS frame. Default 64.
    pub settings_entries_max: u32,
    /// Budget of streams that the client resets before the server has answered them (CVE-2023-44487). Each stream that ends
    /// normally earns one back. Server only. Default 1,000.
    pub resets_received_budget: u32,
    /// Budget of streams that this end resets because of what the peer sent (CVE-2025-8671). Default 1,000.
    pub resets_provoked_budget: u32,
    /// Budget of PING frames (CVE-2019-9512). Full again with each HEADERS or DATA that this end sends. Default 1,000.
    pub pings_budget: u32,
    /// Budget of SETTINGS frames (CVE-2019-9515). Default 1,000.
    pub settings_budget: u32,
    /// Budget of DATA frames that carry neither bytes nor END_STREAM (CVE-2019-9518). Default 1,000.
    pub empty_data_budget: u32,
    /// Budget of DATA frames with less than 5 bytes that neither end their stream nor use up its window: they cost more to read
    /// than they bring. (The shortest message of gRPC has 5 bytes.) Default 10,000.
    pub tiny_data_budget: u32,
    /// Budget of WINDOW_UPDATE frames (CVE-2019-9511). Each stream opened, and each DATA frame sent that a window has not cut
    /// down to less than 256 bytes, earns four back. Default 10,000.
    pub window_updates_budget: u32,
    /// Budget of frames without effect: PRIORITY, unknown types, late frames (but DATA) on closed streams, acknowledgements never
    /// asked for, a second GOAWAY, interim responses. Each stream opened earns four back. Default 10,000.
    pub ignored_frames_budget: u32,
    /// How long an empty budget takes to fill again, in milliseconds. Default 10,000.
    pub budget_refill_ms: u32,
    /// How long the peer's preface and first SETTINGS may take, in milliseconds. Default 10,000.
    pub preface_ms: u32,
    /// How long a frame may take from its first byte to its last, in milliseconds. Default 60,000: a link that is slower than
    /// 300 bytes a second does not carry the largest frame.
    pub frame_ms: u32,
    /// Server: how long DATA may wait for credit, in milliseconds. A stream of which nothing has left for that long because the
    /// client gives no credit for it ends with RST_STREAM(ENHANCE_YOUR_CALM); if the connection's window is what is used up, the
    /// connection ends (CVE-2019-9517). It may take an eighth longer. An application that reads slower than that, on
    /// purpose, needs more; 0 waits for ever. Default 300,000.
    pub credit_wait_ms: u32,
    /// Server: how much DATA may wait, on all streams together and in bytes, for a client that gives no credit, for as long as
    /// [`credit_wait_ms`](Self::credit_wait_ms). More has to go on leaving: see [`stall_ms`](Self::stall_ms). Default 16 MiB.
    pub stalled_bytes_max: usize,
    /// Server: while more than [`stalled_bytes_max`](Self::stalled_bytes_max) waits, at least one byte of 64 that wait has to leave
    /// within this many milliseconds, else the connection ends (CVE-2019-9517). Default 60,000.
    pub stall_ms: u32,
    /// Server: while so much DATA waits, on all streams together and in bytes, new streams are refused with REFUSED_STREAM.
    /// Default 256 MiB.
    pub queued_bytes_max: usize,
    /// How long the acknowledgement of our SETTINGS may take, in milliseconds. Default 10,000.
    pub settings_ack_ms: u32,
    /// How long a graceful shutdown waits for the answer to its PING before it settles the last stream id, in milliseconds.
    /// Default 1,000: a few round trips; what comes later is reported to the client as unprocessed, and safe to try again.
    pub drain_ms: u32,
    /// The same while no stream is open, where it is the lesser of the two: a request that is under way just then is unprocessed, and
    /// safe to try again, while a client that reads nothing between its calls would hold up the shutdown. In milliseconds. Default
    /// 250: the round trip around the globe.
    pub drain_idle_ms: u32,
    /// How this end finds out that the peer is gone although no error says so. Default: it does not.
    pub keepalive: Option<Keepalive>,
    /// Server: how often a client may send PING frames of its own accord. Default: as often as
    /// [`pings_budget`](Self::pings_budget) allows.
    pub ping_policy: Option<PingPolicy>,
    /// When the connection ends by itself. Default: never.
    pub ages: Ages,
}

impl Config {
    /// What a header list of the peer may hold.
    pub(crate) const fn decode_limits(&self) -> DecodeLimits {
        DecodeLimits {
            list_bytes_max: self.header_list_bytes_max as usize,
            fields_max: self.header_fields_max as usize,
            string_bytes_max: self.header_list_bytes_max as usize,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams_max: 1_000,
            streams_assumed: 100,
            stream_id_max: (1 << 31) / 4 * 3,
            stream_window_bytes: 64 * 1024,
            connection_window_bytes: 1024 * 1024,
            window_bytes_max: 16 * 1024 * 1024,
            frame_bytes_max: 16_384,
            frame_bytes_sent_max: 64 * 1024,
            header_table_bytes_max: 4_096,
            header_list_bytes_max: 16 * 1024,
            header_fields_max: 256,
            header_block_bytes_max: 64 * 1024,
            continuations_max: 64,
            header_block_ms: 10_000,
            surrounding_whitespace_allowed: false,
            send_queue_bytes_max: 64 * 1024,
            output_bytes_max: 2 * 1024 * 1024,
            settings_entries_max: 64,
            resets_received_budget: 1_000,
            resets_provoked_budget: 1_000,
            pings_budget: 1_000,
            settings_budget: 1_000,
            empty_data_budget: 1_000,
            tiny_data_budget: 10_000,
            window_updates_budget: 10_000,
            ignored_frames_budget: 10_000,
            budget_refill_ms: 10_000,
            preface_ms: 10_000,
            frame_ms: 60_000,
            credit_wait_ms: 300_000,
            stalled_bytes_max: 16 * 1024 * 1024,
            stall_ms: 60_000,
            queued_bytes_max: 256 * 1024 * 1024,
            settings_ack_ms: 10_000,
            drain_ms: 1_000,
            drain_idle_ms: 250,
            keepalive: None,
            ping_policy: None,
            ages: Ages::NEVER,
        }
    }
}
