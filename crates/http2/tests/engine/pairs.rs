//! Two engines, joined by a wire that is cut into pieces of any size.

use std::collections::HashMap;

use fulmar_base::{Env, Input, Instant, Output, Pool};
use fulmar_http2::{Config, Connection, Event, Field, Role, StreamKey};

use crate::support::{Pairs, fields, ok, owned, request, trailers};

/// One end, its memory, and what it has not read yet.
struct End {
    engine: Connection,
    pool: Pool,
    out: Output,
    unread: Vec<u8>,
}

impl End {
    fn new(role: Role, config: Config) -> Self {
        Self {
            engine: Connection::new(role, config),
            pool: Pool::new(),
            out: Output::new(),
            unread: Vec::new(),
        }
    }

    /// Reads what there is, by the loop contract; `on_event` acts on each event. Returns whether anything happened.
    fn run(&mut self, on_event: &mut dyn FnMut(&mut Connection, &mut Env<'_>, &Event<'_>)) -> bool {
        let unread = std::mem::take(&mut self.unread);
        let input = Input::new(&unread);
        let mut env = Env { now: Instant::ZERO, pool: &mut self.pool, out: &mut self.out };
        let mut events = 0;
        loop {
            while let Some(event) =
                self.engine.next_event(&mut env, &input).expect("no error between two engines")
            {
                events += 1;
                on_event(&mut self.engine, &mut env, &event);
            }
            self.engine.transmit(&mut env);
            if !self.engine.has_events() {
                break;
            }
        }
        self.unread.extend_from_slice(input.remaining());
        events > 0 || input.consumed() > 0
    }
}

/// Moves at most `piece` bytes of what waits.
fn carry(from: &mut Output, to: &mut Vec<u8>, piece: usize) -> bool {
    let first = from.first();
    let moved = first.len().min(piece);
    to.extend_from_slice(&first[..moved]);
    from.advance(moved);
    moved > 0
}

/// What one end has received on a stream.
#[derive(Default, Debug, PartialEq, Eq)]
struct Received {
    sections: Vec<Pairs>,
    content: Vec<u8>,
    ended: bool,
}

/// A server that echoes content as it comes, then sends trailers.
fn echo(engine: &mut Connection, env: &mut Env<'_>, event: &Event<'_>) {
    match *event {
        Event::Headers { stream, end } => {
            if engine.fields().any(|field: Field<'_>| field.name == b":method") {
                engine.send_headers(env, stream, fields(&ok()), false).unwrap();
            }
            if end {
                engine.send_headers(env, stream, fields(&trailers()), true).unwrap();
            }
        }
        Event::Data { stream, bytes, end } => {
            engine.send_data(env, stream, bytes, false).unwrap();
            engine.release(env, stream, bytes.len());
            if end {
                engine.send_headers(env, stream, fields(&trailers()), true).unwrap();
            }
        }
        _ => {}
    }
}

/// Echoes `contents`, one stream each, with wires cut into pieces of these sizes, and checks that everything comes back.
fn echoes(contents: &[Vec<u8>], pieces: &[usize], client: Config, server: Config) {
    let mut client = End::new(Role::Client, client);
    let mut server = End::new(Role::Server, server);
    let mut streams: Vec<(StreamKey, &[u8])> = Vec::new();
    let mut received: HashMap<StreamKey, Received> = HashMap::new();
    let mut env = Env { now: Instant::ZERO, pool: &mut client.pool, out: &mut client.out };
    for content in contents {
        let key = client.engine.open(&mut env, fields(&request()), content.is_empty()).unwrap();
        if !content.is_empty() {
            client.engine.send_data(&mut env, key, content, true).unwrap();
        }
        streams.push((key, content));
    }
    client.engine.transmit(&mut env);

    let mut idle = 0;
    for piece in pieces.iter().cycle() {
        let mut progress = carry(&mut client.out, &mut server.unread, *piece);
        progress |= server.run(&mut echo);
        progress |= carry(&mut server.out, &mut client.unread, *piece);
        progress |= client.run(&mut |engine, env, event| match *event {
            Event::Headers { stream, end } => {
                let received = received.entry(stream).or_default();
                received.sections.push(owned(engine.fields()));
                received.ended |= end;
            }
            Event::Data { stream, bytes, end } => {
                let received = received.entry(stream).or_default();
                received.content.extend_from_slice(bytes);
                received.ended |= end;
                engine.release(env, stream, bytes.len());
            }
            Event::Reset { code, ref text, .. } => panic!("{code}: {text}"),
            _ => {}
        });
        idle = if progress { 0 } else { idle + 1 };
        if idle > pieces.len() {
            break;
        }
    }
    for (key, content) in streams {
        let expected = Received { sections: vec![ok(), trailers()], content: content.to_vec(), ended: true };
        assert!(received.remove(&key) == Some(expected), "stream {key:?} with {} bytes", content.len());
    }
    assert_eq!((client.engine.streams(), server.engine.streams()), (0, 0));
    assert_eq!((client.pool.outstanding(), server.pool.outstanding()), (0, 0));
}

fn contents(lens: &[usize]) -> Vec<Vec<u8>> {
    let content = |(n, &len): (usize, &usize)| (0..len).map(|at| (at * 7 + n) as u8).collect();
    lens.iter().enumerate().map(content).collect()
}

#[test]
fn content_of_all_sizes_comes_back_over_a_whole_wire() {
    let contents = contents(&[0, 1, 100, 16_383, 16_384, 16_385, 65_535, 65_536, 300_000, 3_000_000]);
    echoes(&contents, &[usize::MAX], Config::default(), Config::default());
}

#[test]
fn content_comes_back_over_a_wire_that_gives_one_byte_at_a_time() {
    echoes(&contents(&[0, 1, 100, 2_000]), &[1], Config::default(), Config::default());
}

#[test]
fn content_comes_back_over_wires_cut_anywhere() {
    let contents = contents(&[5, 70_000, 0, 16_384, 200_000]);
    for pieces in
        [&[2, 3, 5, 7, 11, 4_000][..], &[8], &[9], &[10], &[1, 65_536], &[16_393], &[100, 1, 1, 20_000]]
    {
        echoes(&contents, pieces, Config::default(), Config::default());
    }
}

#[test]
fn content_comes_back_through_windows_of_one_byte() {
    let narrow = Config { stream_window_bytes: 1, ..Config::default() };
    echoes(&contents(&[0, 1, 500]), &[usize::MAX], narrow.clone(), narrow.clone());
    echoes(
        &contents(&[70_000]),
        &[usize::MAX],
        Config::default(),
        Config { stream_window_bytes: 6, ..narrow },
    );
}

#[test]
fn a_hundred_streams_share_the_connection() {
    let lens: Vec<usize> = (0..100).map(|n| n * 997).collect();
    echoes(&contents(&lens), &[1_000_000, 3_000], Config::default(), Config::default());
}

#[test]
fn large_frames_are_used_where_both_ends_allow_them() {
    let large = Config { frame_bytes_max: 1 << 20, ..Config::default() };
    echoes(&contents(&[3_000_000, 10]), &[usize::MAX], large.clone(), large);
}
