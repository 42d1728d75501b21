//! R56 to R59 and R61: what clients make of answers that are short, foreign, cut off, reset, or of the wrong number.

use std::thread;

use fulmar::{Channel, Code, MetadataMap, Raw, Status, Streaming, Upload, blocking};

use crate::common::block_on;
use crate::peer::{
    CANCEL, COMPRESSION_ERROR, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR, HEADERS, INTERNAL_ERROR, NO_ERROR, PROTOCOL_ERROR, Peer, REFUSED_STREAM, RawServer,
    STREAM_CLOSED, data, go_away, headers, literal, message, request, reset_stream, response, trailers_ok,
};
use crate::service::{FAIL, U, serve};

/// The method whose answers a case plays.
const PLAYED: &str = "/field.Cases/Played";

/// What a client has heard of a call.
#[derive(Debug)]
struct Heard {
    messages: Vec<Vec<u8>>,
    status: Status,
    /// What came with the status.
    trailers: MetadataMap,
}

/// A client of either kind.
enum Client {
    Async(Channel),
    Blocking(Box<blocking::Channel>),
}

impl Client {
    fn connect(endpoint: &str, is_blocking: bool) -> Self {
        match is_blocking {
            true => {
                let channel = blocking::Channel::connect(endpoint).expect("the peer answers");
                Self::Blocking(Box::new(channel))
            }
            false => Self::Async(Channel::builder(endpoint).build().expect("it is an endpoint")),
        }
    }

    fn unary(&mut self, path: &str) -> Heard {
        let question = Raw::from(b"question".to_vec());
        let answer = match self {
            Self::Async(channel) => block_on(channel.unary::<Raw, Raw>(path, question)),
            Self::Blocking(channel) => channel.unary::<Raw, Raw>(path, question),
        };
        match answer {
            Ok(answer) => {
                let (_, message, trailers) = answer.into_parts();
                Heard { messages: vec![message.as_ref().to_vec()], status: Status::default(), trailers }
            }
            Err(status) => Heard { messages: vec![], trailers: status.metadata().clone(), status },
        }
    }

    /// A call that streams to the server, with one message.
    fn upload(&mut self, path: &str) -> Result<(), Status> {
        let message = Raw::from(b"question".to_vec());
        match self {
            Self::Async(channel) => block_on(async {
                let mut upload: Upload<Raw, Raw> = channel.client_streaming(path, ()).await?;
                upload.send(&message).await?;
                upload.finish().await.map(drop)
            }),
            Self::Blocking(channel) => {
                let mut upload = channel.client_streaming::<Raw, Raw>(path, ())?;
                upload.send(&message)?;
                upload.finish().map(drop)
            }
        }
    }

    fn stream(&mut self, path: &str) -> Heard {
        let question = Raw::from(b"question".to_vec());
        let mut messages = Vec::new();
        let mut hear = |next: Result<Option<Raw>, Status>| match next {
            Ok(Some(message)) => {
                messages.push(message.as_ref().to_vec());
                None
            }
            Ok(None) => Some(Status::default()),
            Err(status) => Some(status),
        };
        let (status, trailers) = match self {
            Self::Async(channel) => block_on(async {
                let mut replies: Streaming<Raw> = match channel.server_streaming(path, question).await {
                    Ok(replies) => replies.into_inner(),
                    Err(status) => return (status.clone(), status.metadata().clone()),
                };
                loop {
                    if let Some(status) = hear(replies.message().await) {
                        return (status, replies.trailers().clone());
                    }
                }
            }),
            Self::Blocking(channel) => match channel.server_streaming::<Raw, Raw>(path, question) {
                Ok(replies) => {
                    let mut replies = replies.into_inner();
                    loop {
                        if let Some(status) = hear(replies.message()) {
                            break (status, replies.trailers().clone());
                        }
                    }
                }
                Err(status) => (status.clone(), status.metadata().clone()),
            },
        };
        Heard { messages, status, trailers }
    }
}

/// Plays an answer to each kind of client, in a unary and in a streaming call, and shows what it heard. If `alive`, a normal call
/// on the same connection must succeed then.
fn each_client(alive: bool, play: impl Fn(&mut Peer, u32) + Sync, check: impl Fn(&Heard)) {
    for (is_blocking, is_stream) in [(false, false), (false, true), (true, false), (true, true)] {
        let server = RawServer::bind();
        thread::scope(|scope| {
            scope.spawn(|| answer_all(&mut server.accept(&[]), &play));
            let mut client = Client::connect(&server.endpoint(), is_blocking);
            let heard = if is_stream { client.stream(PLAYED) } else { client.unary(PLAYED) };
            check(&heard);
            if alive {
                assert_eq!(client.unary(U).messages, [b"alive"], "the connection is well");
            }
        });
    }
}

/// Answers the calls of a connection until it ends: those of [`PLAYED`] with the case, others as they should be.
fn answer_all(peer: &mut Peer, play: &impl Fn(&mut Peer, u32)) {
    let mut played = false;
    while let Some(frame) = peer.try_next() {
        if frame.kind == HEADERS {
            played = frame.field(":path") == Some(PLAYED);
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.has(END_STREAM) {
            match played {
                true => play(peer, frame.stream),
                false => peer.reply(frame.stream, b"alive"),
            }
        }
    }
}

/// A header block that is the whole answer.
fn whole_answer(stream: u32, fields: &[Vec<u8>]) -> Vec<u8> {
    headers(stream, END_HEADERS | END_STREAM, &fields.concat())
}

fn status_of(http: &str) -> Vec<u8> {
    literal(":status", http)
}

#[test]
fn r56_a_block_of_trailers_is_a_whole_answer_with_or_without_content_type() {
    let fields =
        || [literal("grpc-status", "5"), literal("grpc-message", "no%20such"), literal("kind", "cat")];
    let content_type = literal("content-type", "application/grpc");
    for with_content_type in [true, false] {
        let first = if with_content_type { content_type.clone() } else { vec![] };
        let block = [&[status_of("200"), first][..], &fields()].concat();
        let play = |peer: &mut Peer, stream| peer.send(&[whole_answer(stream, &block)]);
        each_client(true, play, |heard| {
            assert_eq!((heard.status.code(), heard.status.message()), (Code::NotFound, "no such"));
            assert_eq!(heard.status.metadata().get("kind"), Some("cat"));
            assert_eq!(heard.trailers.get("kind"), Some("cat"));
            assert!(heard.messages.is_empty());
        });
    }
}

#[test]
fn r56_a_status_in_headers_that_do_not_end_the_answer_does_not_count() {
    let opening = [response(), literal("grpc-status", "5"), literal("grpc-message", "no")].concat();
    let play = |peer: &mut Peer, stream| {
        peer.send(&[
            headers(stream, END_HEADERS, &opening),
            data(stream, 0, &message(b"answer")),
            headers(stream, END_HEADERS | END_STREAM, &[trailers_ok(), literal("kind", "cat")].concat()),
        ]);
    };
    each_client(true, play, |heard| {
        assert_eq!((heard.status.code(), &heard.messages[..]), (Code::Ok, &[b"answer".to_vec()][..]));
        assert_eq!(heard.trailers.get("kind"), Some("cat"));
    });
}

#[test]
fn r56_a_grpc_status_counts_whatever_the_http_status_says() {
    let block = [
        status_of("503"),
        literal("content-type", "text/html"),
        literal("grpc-status", "8"),
        literal("grpc-message", "sold out"),
        literal("kind", "cat"),
    ];
    let play = |peer: &mut Peer, stream| peer.send(&[whole_answer(stream, &block)]);
    each_client(true, play, |heard| {
        assert_eq!((heard.status.code(), heard.status.message()), (Code::ResourceExhausted, "sold out"));
        assert_eq!(heard.status.metadata().get("kind"), Some("cat"));
    });
}

#[test]
fn r56_an_http_status_alone_is_mapped() {
    let play = |peer: &mut Peer, stream| peer.send(&[whole_answer(stream, &[status_of("503")])]);
    each_client(true, play, |heard| {
        assert_eq!(heard.status.code(), Code::Unavailable);
        assert!(heard.status.message().contains("503"), "{}", heard.status);
    });
}

#[test]
fn r56_a_server_answers_a_call_that_fails_at_once_with_one_block() {
    let (server, _) = serve();
    let mut peer = Peer::connect(server.local_addr().unwrap());
    let stream = peer.take_stream();
    peer.send(&[headers(stream, END_HEADERS, &request(FAIL))]);
    let answer = peer.next();
    assert!(answer.is(HEADERS, stream) && answer.has(END_STREAM), "{answer:?}");
    for (name, value) in [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "3"),
        ("grpc-message", "nope %C3%A9%25"),
    ] {
        assert_eq!(answer.field(name), Some(value));
    }
    peer.assert_alive();
}

/// What a proxy says when the server behind it is gone.
fn error_page() -> Vec<u8> {
    let mut page = b"<html><head><title>Out to lunch</title></head><body><h1>Try again after two</h1> \
        <p>The kitchen is closed, and nobody is there to answer.</p>"
        .to_vec();
    page.resize(50_000, b'.');
    page
}

#[test]
fn r57_the_page_of_a_proxy_is_mapped_and_quoted() {
    let statuses = [
        ("200", Code::Unknown),
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("418", Code::Unknown),
        ("429", Code::Unavailable),
        ("431", Code::Unknown),
        ("500", Code::Unknown),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
    ];
    for (http, code) in statuses {
        let opening = [status_of(http), literal("content-type", "text/html; charset=utf-8")].concat();
        let play = |peer: &mut Peer, stream| {
            peer.send(&[headers(stream, END_HEADERS, &opening)]);
            peer.send_content(stream, &error_page(), true);
        };
        each_client(true, play, |heard| {
            assert_eq!(heard.status.code(), code, "{http}: {}", heard.status);
            let beginning = String::from_utf8(error_page()[..100].to_vec()).unwrap();
            for part in [http, "text/html; charset=utf-8", &beginning] {
                assert!(heard.status.message().contains(part), "no {part:?} in {}", heard.status);
            }
            assert!(heard.status.message().len() < 1_000, "not all of it: {}", heard.status);
            assert!(heard.messages.is_empty());
        });
    }
}

/// More pages than the connection's window has room for, sent as that allows.
#[test]
fn r57_pages_of_a_proxy_are_credited_to_the_connection() {
    let server = RawServer::bind();
    let opening = [status_of("502"), literal("content-type", "text/html")].concat();
    let play = |peer: &mut Peer, stream| {
        peer.send(&[headers(stream, END_HEADERS, &opening)]);
        peer.send_content(stream, &error_page(), true);
    };
    thread::scope(|scope| {
        scope.spawn(|| answer_all(&mut server.accept(&[]), &play));
        let mut client = Client::connect(&server.endpoint(), false);
        for _ in 0..60 {
            assert_eq!(client.unary(PLAYED).status.code(), Code::Unavailable);
        }
        assert_eq!(client.unary(U).messages, [b"alive"]);
    });
}

/// What came before the end is read from streams; a unary call is not shown it.
fn assert_cut_off(heard: &Heard, codes: &[Code]) {
    assert!(codes.contains(&heard.status.code()), "{:?}", heard.status);
    assert!(heard.messages.is_empty() || heard.messages == [b"one"], "{heard:?}");
}

/// The parts of an answer up to its first message.
fn begun(stream: u32) -> [Vec<u8>; 2] {
    [headers(stream, END_HEADERS, &response()), data(stream, 0, &message(b"one"))]
}

#[test]
fn r58_an_answer_without_trailers_is_no_success() {
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.send(&[data(stream, END_STREAM, b"")]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Unknown]));
    // The same with the end on the message itself.
    let play = |peer: &mut Peer, stream| {
        let opening = headers(stream, END_HEADERS, &response());
        peer.send(&[opening, data(stream, END_STREAM, &message(b"one"))]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Unknown]));
}

#[test]
fn r58_trailers_without_a_status_are_no_success() {
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.send(&[headers(stream, END_HEADERS | END_STREAM, &literal("kind", "cat"))]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Unknown]));
}

#[test]
fn r58_an_end_inside_a_message_is_no_success() {
    let half = &message(b"two")[..6];
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.send(&[data(stream, END_STREAM, half)]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Internal, Code::Unknown]));
    // Even if trailers say that all is well.
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        let trailers = headers(stream, END_HEADERS | END_STREAM, &trailers_ok());
        peer.send(&[data(stream, 0, half), trailers]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Internal, Code::Unknown]));
}

#[test]
fn r58_a_reset_without_an_error_in_front_of_the_trailers_is_no_success() {
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.send(&[reset_stream(stream, NO_ERROR)]);
    };
    each_client(true, play, |heard| assert_cut_off(heard, &[Code::Internal]));
}

#[test]
fn r58_a_connection_that_ends_behind_a_whole_message_is_no_success() {
    let play = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.half_close();
    };
    each_client(false, play, |heard| assert_cut_off(heard, &[Code::Unavailable]));
}

#[test]
fn r58_messages_in_front_of_a_broken_end_are_delivered_on_streams() {
    for is_blocking in [false, true] {
        let server = RawServer::bind();
        let play = |peer: &mut Peer, stream| {
            peer.send(&begun(stream));
            peer.send(&[data(stream, END_STREAM, &message(b"two")[..7])]);
        };
        thread::scope(|scope| {
            scope.spawn(|| answer_all(&mut server.accept(&[]), &play));
            let heard = Client::connect(&server.endpoint(), is_blocking).stream(PLAYED);
            assert_eq!(heard.messages, [b"one"]);
            assert_ne!(heard.status.code(), Code::Ok);
        });
    }
}

/// What the codes of RFC 9113 §7 mean, and one that it does not know.
const RESETS: [(u32, Code); 15] = [
    (NO_ERROR, Code::Internal),
    (PROTOCOL_ERROR, Code::Internal),
    (INTERNAL_ERROR, Code::Internal),
    (FLOW_CONTROL_ERROR, Code::Internal),
    (4, Code::Internal), // SETTINGS_TIMEOUT
    (STREAM_CLOSED, Code::Internal),
    (FRAME_SIZE_ERROR, Code::Internal),
    (REFUSED_STREAM, Code::Unavailable),
    (CANCEL, Code::Cancelled),
    (COMPRESSION_ERROR, Code::Internal),
    (10, Code::Internal), // CONNECT_ERROR
    (ENHANCE_YOUR_CALM, Code::ResourceExhausted),
    (12, Code::PermissionDenied), // INADEQUATE_SECURITY
    (13, Code::Internal),         // HTTP_1_1_REQUIRED
    (0xdead, Code::Internal),
];

#[test]
fn r59_resets_in_front_of_an_answer_are_mapped() {
    for (reset, code) in RESETS {
        let play = |peer: &mut Peer, stream| peer.send(&[reset_stream(stream, reset)]);
        each_client(true, play, |heard| assert_eq!(heard.status.code(), code, "{reset}: {}", heard.status));
    }
}

#[test]
fn r59_resets_in_the_middle_of_an_answer_are_mapped() {
    for (reset, code) in RESETS {
        let play = |peer: &mut Peer, stream| {
            peer.send(&begun(stream));
            peer.send(&[reset_stream(stream, reset)]);
        };
        each_client(true, play, |heard| assert_eq!(heard.status.code(), code, "{reset}: {}", heard.status));
    }
}

#[test]
fn r59_a_go_away_or_a_lost_connection_is_unavailable() {
    for code in [NO_ERROR, INTERNAL_ERROR, CANCEL, ENHANCE_YOUR_CALM] {
        let play = |peer: &mut Peer, stream| {
            peer.send(&begun(stream));
            peer.send(&[go_away(stream, code)]);
            peer.half_close();
        };
        each_client(false, play, |heard| {
            assert_eq!(heard.status.code(), Code::Unavailable, "{code}: {}", heard.status);
        });
    }
}

/// Wire rule 22.
#[test]
fn r61_a_client_refuses_no_and_two_replies_where_there_is_one() {
    for (is_blocking, replies) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
        let server = RawServer::bind();
        let play = |peer: &mut Peer, stream| {
            peer.send(&[
                headers(stream, END_HEADERS, &response()),
                data(stream, 0, &message(b"reply").repeat(replies)),
                headers(stream, END_HEADERS | END_STREAM, &trailers_ok()),
            ]);
        };
        thread::scope(|scope| {
            scope.spawn(|| answer_all(&mut server.accept(&[]), &play));
            let mut client = Client::connect(&server.endpoint(), is_blocking);
            let heard = client.unary(PLAYED);
            assert_eq!(heard.status.code(), Code::Unimplemented, "{replies} replies: {}", heard.status);
            let status = client.upload(PLAYED).expect_err("there is not one reply");
            assert_eq!(status.code(), Code::Unimplemented, "{replies} replies: {status}");
            assert_eq!(client.stream(PLAYED).messages.len(), replies, "a stream may have any number");
            assert_eq!(client.unary(U).messages, [b"alive"]);
        });
    }
}

/// Wire rules 29 and 30.
#[test]
fn headers_in_the_middle_of_an_answer_and_interim_ones_at_its_end_are_internal() {
    let in_the_middle = |peer: &mut Peer, stream| {
        peer.send(&begun(stream));
        peer.send(&[headers(stream, END_HEADERS, &trailers_ok())]);
        assert_eq!(peer.expect_reset(stream), PROTOCOL_ERROR);
    };
    each_client(true, in_the_middle, |heard| assert_cut_off(heard, &[Code::Internal]));
    let interim_end = |peer: &mut Peer, stream| {
        peer.send(&[whole_answer(stream, &[status_of("103")])]);
        assert_eq!(peer.expect_reset(stream), PROTOCOL_ERROR);
    };
    each_client(true, interim_end, |heard| assert_cut_off(heard, &[Code::Internal]));
    let interim = |peer: &mut Peer, stream| {
        peer.send(&[headers(stream, END_HEADERS, &[status_of("103"), literal("grpc-status", "5")].concat())]);
        peer.reply(stream, b"one");
    };
    each_client(true, interim, |heard| {
        assert_eq!((heard.status.code(), &heard.messages[..]), (Code::Ok, &[b"one".to_vec()][..]));
    });
}

/// Wire rule 47: many threads make calls of one channel at the same time.
#[test]
fn stream_ids_rise_by_two_in_the_order_of_the_wire() {
    const THREADS: u32 = 4;
    const CALLS: u32 = 25;
    let server = RawServer::bind();
    let channel = Channel::builder(server.endpoint()).build().unwrap();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            let channel = channel.clone();
            scope.spawn(move || {
                for _ in 0..CALLS {
                    block_on(channel.unary::<Raw, Raw>(U, Raw::default())).unwrap();
                }
            });
        }
        drop(channel);
        let mut peer = server.accept(&[]);
        for index in 0..THREADS * CALLS {
            let stream = peer.expect_request();
            assert_eq!(stream, 2 * index + 1);
            peer.reply(stream, b"");
        }
        peer.expect_end();
    });
}
