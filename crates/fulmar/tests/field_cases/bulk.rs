//! R20, R21: what nobody reads. R79, R80: what a small call costs in packets and in waiting.

use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use fulmar::{Channel, Code, Http2Config, Raw, Request, Response, Streaming, blocking};

use crate::common::block_on;
use crate::peer::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, PATIENCE, Peer, RawServer, data,
    headers, message, request, reset_stream, response,
};
use crate::service::{BIG, BIG_MESSAGE_BYTES, CS, Seen, U, serve};

const KIB: usize = 1024;

/// A request that ends by itself should it hang.
fn patient<T>(message: T) -> Request<T> {
    Request::new(message).with_timeout(PATIENCE)
}

async fn unread_streams(channel: &Channel, count: usize) -> Vec<Streaming<Raw>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let call = channel.server_streaming::<Raw, Raw>(BIG, Raw::default());
        streams.push(call.await.unwrap().into_inner());
    }
    streams
}

#[test]
fn r20_streams_that_are_not_read_hold_up_no_other_call() {
    let (server, seen) = serve();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    block_on(async {
        let channel = Channel::connect(endpoint).await.unwrap();
        let _unread = unread_streams(&channel, 10).await;
        for _ in 0..100 {
            let reply: Response<Raw> = channel.unary(U, patient(Raw::from(b"small".to_vec()))).await.unwrap();
            assert_eq!(reply.into_inner().as_ref(), b"small");
        }
    });
    // A window, a queue, and a message that overshoots each.
    let sent = seen.big_sent.load(Ordering::SeqCst) * BIG_MESSAGE_BYTES;
    assert!(sent <= 10 * 4 * 64 * KIB, "{sent} bytes of streams that nobody reads were sent");
}

#[test]
fn r20_credit_of_the_connection_does_not_wait_for_the_application() {
    let raw = RawServer::bind();
    // The connection's window holds one stream's: unread streams that kept it would stop the second one.
    let config = Http2Config {
        stream_window_bytes: 65_535,
        connection_window_bytes: 65_535,
        window_bytes_max: 0,
        ..Http2Config::default()
    };
    let settings = Channel::builder(raw.endpoint()).http2(config);
    let client = thread::spawn(move || {
        block_on(async {
            let channel = settings.connect().await.unwrap();
            let _unread = unread_streams(&channel, 10).await;
            let reply: Response<Raw> = channel.unary(U, patient(Raw::default())).await.unwrap();
            reply.into_inner()
        })
    });
    let mut peer = raw.accept(&[]);
    assert_eq!(peer.setting(INITIAL_WINDOW_SIZE).unwrap_or(65_535), 65_535);
    let content = message(&[7; 995]).repeat(65);
    let mut unread = Vec::new();
    for _ in 0..10 {
        let stream = peer.expect_request();
        peer.send(&[headers(stream, END_HEADERS, &response())]);
        peer.send_content(stream, &content, false);
        unread.push(stream);
    }
    let stream = peer.expect_request();
    peer.reply(stream, b"small");
    assert_eq!(client.join().unwrap().as_ref(), b"small");
    for stream in unread {
        assert_eq!(peer.credited(stream), 0, "nobody has read it");
    }
}

/// Waits until something is so.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what} takes too long");
        thread::sleep(Duration::from_millis(1));
    }
}

fn big_sent_bytes(seen: &Seen) -> usize {
    seen.big_sent.load(Ordering::SeqCst) * BIG_MESSAGE_BYTES
}

#[test]
fn r21_a_handler_waits_for_a_client_that_does_not_read_and_is_let_go_with_its_call() {
    let (server, seen) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(BIG)), data(stream, END_STREAM, &message(b""))]);
    peer.expect_content(stream, 65_535);
    peer.settle();
    let sent = big_sent_bytes(&seen);
    assert!(sent < 65_535 + 256 * KIB, "{sent} bytes were sent into a window of 65,535");
    for _ in 0..20 {
        let frames = peer.settle();
        assert!(frames.iter().all(|frame| !frame.is(DATA, stream)), "the window is used up");
    }
    assert_eq!(big_sent_bytes(&seen), sent, "the handler waits");
    peer.send(&[reset_stream(stream, CANCEL)]);
    wait_until("the end of the handler", || seen.big_ended.load(Ordering::SeqCst) == 1);
}

/// How many bytes a client can send within half a second, in messages of 16 KiB, and how its call ended.
fn upload(endpoint: String, timeout: Option<Duration>) -> (usize, Code) {
    block_on(async {
        let channel = Channel::builder(endpoint).build().unwrap();
        let mut request = Request::new(());
        if let Some(timeout) = timeout {
            request = request.with_timeout(timeout);
        }
        let mut upload = channel.client_streaming::<Raw, Raw>(CS, request).await.unwrap();
        let (message, mut bytes) = (Raw::from(vec![7; 16 * KIB]), 0);
        loop {
            match upload.send(&message).await {
                Ok(()) => bytes += message.as_ref().len(),
                Err(status) => return (bytes, status.code()),
            }
            assert!(bytes < 1 << 30, "it sends without end");
        }
    })
}

const HALF_A_SECOND: Option<Duration> = Some(Duration::from_millis(500));

#[test]
fn r21_a_client_waits_for_a_server_that_does_not_read_until_its_deadline() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || upload(endpoint, HALF_A_SECOND));
    let peer = raw.accept(&[]);
    let (sent, code) = client.join().unwrap();
    drop(peer);
    assert_eq!(code, Code::DeadlineExceeded);
    assert!((64 * KIB..65_535 + 256 * KIB).contains(&sent), "{sent} bytes were sent into a window of 65,535");
}

#[test]
fn r21_a_client_waits_for_a_server_that_goes() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || upload(endpoint, None));
    let mut peer = raw.accept(&[]);
    let stream = peer.expect_request();
    peer.expect_content(stream, 65_535);
    drop((peer, raw));
    let (sent, code) = client.join().unwrap();
    assert_eq!(code, Code::Unavailable);
    assert!(sent < 65_535 + 256 * KIB, "{sent} bytes were sent into a window of 65,535");
}

#[test]
fn r21_a_client_without_a_connection_sends_next_to_nothing() {
    // The system accepts for a listener; there are no SETTINGS.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let (sent, code) = upload(endpoint, HALF_A_SECOND);
    assert_eq!(code, Code::DeadlineExceeded);
    assert!(sent <= 64 * KIB, "{sent} bytes wait for a connection");
}

#[test]
fn r79_small_calls_do_not_wait_for_acknowledgements_of_packets() {
    let (server, _) = serve();
    let mut channel = blocking::Channel::connect(format!("http://{}", server.local_addr().unwrap())).unwrap();
    // 3 KB with its reply is more than one packet on a real path, and less than one on loopback.
    for bytes in [100, 3_000] {
        let message = Raw::from(vec![7; bytes]);
        let mut slow = 0;
        for _ in 0..1_000 {
            let began = Instant::now();
            let _: Response<Raw> = channel.unary(U, message.clone()).unwrap();
            slow += usize::from(began.elapsed() > Duration::from_millis(20));
        }
        // With Nagle's algorithm and delayed acknowledgements each of them takes 40 ms. A busy machine makes a few of them slow.
        assert!(slow < 200, "{slow} of 1,000 calls of {bytes} bytes took more than 20 ms");
    }
}

/// The kinds of the frames in what one read brought, all of them whole, and whether the last one ends its stream.
fn frames_of_one_read(peer: &Peer) -> (Vec<u8>, bool) {
    let mut bytes = vec![0; 256 * KIB];
    let read = (&mut peer.socket()).read(&mut bytes).unwrap();
    let (mut rest, mut kinds, mut ends) = (&bytes[..read], Vec::new(), false);
    while let Some((head, behind)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        kinds.push(head[3]);
        ends = head[4] & END_STREAM != 0;
        rest = behind.get(length..).expect("a frame is not cut in two");
    }
    assert!(rest.is_empty(), "a frame's head is not cut in two");
    (kinds, ends)
}

#[test]
fn r80_a_request_leaves_in_one_write() {
    let raw = RawServer::bind();
    let endpoint = raw.endpoint();
    let client = thread::spawn(move || {
        let mut channel = blocking::Channel::connect(endpoint).unwrap();
        for _ in 0..100 {
            let _: Response<Raw> = channel.unary(U, Raw::from(vec![7; 100])).unwrap();
        }
    });
    let mut peer = raw.accept(&[]);
    for call in 0..100 {
        if call == 0 {
            let stream = peer.expect_request();
            peer.reply(stream, b"");
            continue;
        }
        assert_eq!(frames_of_one_read(&peer), (vec![HEADERS, DATA], true), "call {call}");
        peer.reply(2 * call + 1, b"");
    }
    client.join().unwrap();
}

#[test]
fn r80_answers_leave_in_one_write_and_many_of_them_in_few() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    peer.assert_alive();
    let begin = |peer: &mut Peer| {
        let stream = peer.take_stream();
        [headers(stream, END_HEADERS, &request(U)), data(stream, END_STREAM, &message(&[7; 100]))].concat()
    };
    for _ in 0..100 {
        let call = begin(&mut peer);
        peer.send(&[call]);
        assert_eq!(frames_of_one_read(&peer), (vec![HEADERS, DATA, HEADERS], true));
    }
    let calls: Vec<_> = (0..64).map(|_| begin(&mut peer)).collect();
    peer.send(&calls);
    let (mut reads, mut frames) = (0, 0);
    while frames < 3 * 64 {
        frames += frames_of_one_read(&peer).0.len();
        reads += 1;
    }
    assert!(reads <= 64 * 3 / 10, "64 answers came in {reads} reads");
}
