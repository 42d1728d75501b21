//! Compressed messages, ours against ours: what calls, messages and handlers choose, and what both sides can tell of it.

mod common;

use common::encodings::{PATH_CHAT, PATH_UNARY, PATH_UPLOAD, RunLength, Scale, flag};
use fulmar::{
    Channel, ChannelBuilder, Code, Compress, Compression, Duplex, LocalReactor, Raw, Request, Response,
    Server, ServerBuilder, Status, Upload, blocking,
};

/// Runs what `calls` makes against a server with these settings.
fn with_server<F: AsyncFnOnce(String)>(settings: ServerBuilder, calls: F) {
    let server = settings.add_service(Scale::default()).bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut reactor = LocalReactor::new().unwrap();
    reactor.serve(server).unwrap();
    reactor.block_on(calls(endpoint));
}

fn both_ways() -> ServerBuilder {
    Server::builder().accept_compressed(RunLength("rle")).send_compressed(RunLength("rle"))
}

fn client(endpoint: &str) -> ChannelBuilder {
    Channel::builder(endpoint).accept_compressed(RunLength("rle")).send_compressed(RunLength("rle"))
}

/// What compresses well.
fn even() -> Raw {
    Raw::from(vec![7; 10_000])
}

/// What gets twice as large.
fn uneven() -> Raw {
    Raw::from((0..10_000).map(|index| index as u8).collect::<Vec<_>>())
}

/// How the server got the message, and how its answer came: each the encoding and the flag.
fn seen(response: &Response<Raw>) -> (String, String, String, char) {
    let said = |name: &str| response.metadata().get(name).unwrap().to_owned();
    (
        said("x-encoding"),
        said("x-flag"),
        response.encoding().unwrap_or("none").to_owned(),
        flag(response.was_compressed()).into(),
    )
}

fn as_seen(sent: &str, sent_flag: &str, got: &str, got_flag: char) -> (String, String, String, char) {
    (sent.into(), sent_flag.into(), got.into(), got_flag)
}

fn request(message: Raw, compression: Compression, want: &str) -> Request<Raw> {
    let mut request = Request::new(message).with_compression(compression);
    request.metadata_mut().insert("x-want", want).unwrap();
    request
}

#[test]
fn what_gets_smaller_is_compressed_and_what_does_not_is_sent_as_it_is() {
    with_server(both_ways(), async |endpoint| {
        let channel = client(&endpoint).connect().await.unwrap();
        let response = channel.unary(PATH_UNARY, even()).await.unwrap();
        assert_eq!(response.get_ref(), &even());
        assert_eq!(seen(&response), as_seen("rle", "c", "rle", 'c'));
        for message in [uneven(), Raw::from(vec![7; 100]), Raw::default()] {
            let response = channel.unary(PATH_UNARY, message.clone()).await.unwrap();
            assert_eq!(response.get_ref(), &message);
            assert_eq!(seen(&response), as_seen("rle", "p", "rle", 'p'));
        }
    });
}

#[test]
fn a_call_that_asks_for_compression_gets_it_and_one_that_refuses_it_does_not() {
    let settings = both_ways().accept_compressed(RunLength("other"));
    with_server(settings, async |endpoint| {
        let channel = client(&endpoint).accept_compressed(RunLength("other")).connect().await.unwrap();
        for (ask, want, expected) in [
            (Compression::Off, "off", as_seen("none", "p", "none", 'p')),
            (Compression::On, "on", as_seen("rle", "c", "rle", 'c')),
            (Compression::encoding("other"), "rle", as_seen("other", "c", "rle", 'c')),
            (Compression::Off, "other", as_seen("none", "p", "other", 'c')),
            (Compression::encoding("identity"), "identity", as_seen("none", "p", "none", 'p')),
        ] {
            for message in [even(), uneven(), Raw::default()] {
                let response =
                    channel.unary(PATH_UNARY, request(message.clone(), ask.clone(), want)).await.unwrap();
                assert_eq!(response.get_ref(), &message, "{ask:?} {want}");
                assert_eq!(seen(&response), expected, "{ask:?} {want}");
            }
        }
    });
}

#[test]
fn an_encoding_that_is_not_registered_is_an_error_of_the_side_that_asks_for_it() {
    with_server(both_ways(), async |endpoint| {
        let channel = client(&endpoint).connect().await.unwrap();
        let asked = request(even(), Compression::encoding("snappy"), "off");
        let refused: Result<Response<Raw>, Status> = channel.unary(PATH_UNARY, asked).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Internal);
        assert!(refused.message().contains("\"snappy\""), "{refused}");

        let wanted = request(even(), Compression::Default, "snappy");
        let failed: Result<Response<Raw>, Status> = channel.unary(PATH_UNARY, wanted).await;
        let failed = failed.unwrap_err();
        assert_eq!(failed.code(), Code::Internal);
        assert!(failed.message().contains("\"snappy\""), "{failed}");
    });
}

#[test]
fn a_server_that_does_not_know_the_encoding_says_what_it_knows() {
    let settings = Server::builder().accept_compressed(RunLength("one")).accept_compressed(RunLength("two"));
    with_server(settings, async |endpoint| {
        let channel = client(&endpoint).connect().await.unwrap();
        let refused: Result<Response<Raw>, Status> = channel.unary(PATH_UNARY, even()).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        assert!(refused.message().contains("rle"), "{refused}");
    });
}

/// Wire rule 19.
#[test]
fn a_server_sends_plain_messages_to_a_client_that_accepts_no_encoding() {
    with_server(both_ways(), async |endpoint| {
        let channel = Channel::builder(&endpoint).send_compressed(RunLength("rle")).connect().await.unwrap();
        for want in ["default", "on", "rle"] {
            let asked = request(even(), Compression::Default, want);
            let response = channel.unary(PATH_UNARY, asked).await.unwrap();
            assert_eq!(seen(&response), as_seen("rle", "c", "none", 'p'));
        }
    });
}

#[test]
fn the_two_directions_have_encodings_of_their_own() {
    let settings = Server::builder().accept_compressed(RunLength("up")).send_compressed(RunLength("down"));
    with_server(settings, async |endpoint| {
        let channel = Channel::builder(&endpoint)
            .send_compressed(RunLength("up"))
            .accept_compressed(RunLength("down"))
            .connect()
            .await
            .unwrap();
        let response = channel.unary(PATH_UNARY, even()).await.unwrap();
        assert_eq!(seen(&response), as_seen("up", "c", "down", 'c'));
    });
}

#[test]
fn each_message_of_a_stream_may_choose() {
    with_server(both_ways(), async |endpoint| {
        let channel = client(&endpoint).connect().await.unwrap();
        let mut upload: Upload<Raw, Raw> = channel.client_streaming(PATH_UPLOAD, ()).await.unwrap();
        for (message, compress) in [
            (even(), Compress::Default),
            (even(), Compress::No),
            (Raw::default(), Compress::Yes),
            (uneven(), Compress::Default),
            (uneven(), Compress::Yes),
        ] {
            upload.send_with(&message, compress).await.unwrap();
        }
        assert_eq!(upload.finish().await.unwrap().get_ref().as_ref(), b"cpcpc");

        let call: Duplex<Raw, Raw> = channel.bidi(PATH_CHAT, ()).await.unwrap();
        let Duplex { mut requests, mut replies } = call;
        let mut flags = Vec::new();
        for first in *b"ynd" {
            let mut message = vec![first];
            message.resize(if first == b'd' { 1_000 } else { 10 }, 0);
            requests.send(&Raw::from(message.clone())).await.unwrap();
            assert_eq!(replies.message().await.unwrap().unwrap().as_ref(), message);
            flags.push(flag(replies.last_was_compressed()));
        }
        assert_eq!(flags, b"cpc");
        assert_eq!(replies.encoding().as_deref(), Some("rle"));
        requests.finish();
        assert!(replies.message().await.unwrap().is_none());
    });
}

#[test]
fn a_handler_turns_compression_off_in_the_middle_of_its_stream() {
    with_server(both_ways(), async |endpoint| {
        let channel = client(&endpoint).connect().await.unwrap();
        let call: Duplex<Raw, Raw> = channel.bidi(PATH_CHAT, ()).await.unwrap();
        let Duplex { mut requests, mut replies } = call;
        let mut flags = Vec::new();
        for first in *b"xoxy" {
            let mut message = vec![0; 1_000];
            message[0] = first;
            requests.send(&Raw::from(message)).await.unwrap();
            replies.message().await.unwrap().unwrap();
            flags.push(flag(replies.last_was_compressed()));
        }
        assert_eq!(flags, b"cppc", "what is said for one message counts for it");
        requests.finish();
        assert!(replies.message().await.unwrap().is_none());
    });
}

#[test]
fn a_blocking_channel_compresses_too() {
    let server = both_ways().add_service(Scale::default()).bind("127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let mut channel = blocking::Channel::with(client(&endpoint)).unwrap();
    let response: Response<Raw> = channel.unary(PATH_UNARY, even()).unwrap();
    assert_eq!(seen(&response), as_seen("rle", "c", "rle", 'c'));

    let mut upload: blocking::Upload<'_, Raw, Raw> = channel.client_streaming(PATH_UPLOAD, ()).unwrap();
    upload.send(&even()).unwrap();
    upload.send_with(&even(), Compress::No).unwrap();
    upload.send_with(&Raw::default(), Compress::Yes).unwrap();
    assert_eq!(upload.finish().unwrap().get_ref().as_ref(), b"cpc");

    let mut chat: blocking::Duplex<'_, Raw, Raw> = channel.bidi(PATH_CHAT, ()).unwrap();
    chat.send_with(&Raw::from(b"y".to_vec()), Compress::Yes).unwrap();
    assert_eq!(chat.message().unwrap().unwrap().as_ref(), b"y");
    assert!(chat.last_was_compressed());
    assert_eq!(chat.encoding().as_deref(), Some("rle"));
    chat.finish_sending();
    assert!(chat.message().unwrap().is_none());
    drop(chat);
    server.shutdown(std::time::Duration::from_secs(5)).unwrap();
}

#[test]
fn an_encoding_cannot_be_called_anything() {
    for name in ["identity", "", "Gzip", "a b", "a,b"] {
        let error = Server::builder().accept_compressed(RunLength(name)).bind("127.0.0.1:0").unwrap_err();
        assert!(error.to_string().contains("cannot be called"), "{error}");
        let error =
            Channel::builder("http://127.0.0.1:1").send_compressed(RunLength(name)).build().unwrap_err();
        assert!(error.to_string().contains("cannot be called"), "{error}");
    }
}

#[cfg(all(feature = "gzip", feature = "deflate", feature = "zstd"))]
#[test]
fn the_encodings_that_come_along_work_in_every_combination() {
    use fulmar::encoding::{Deflate, Gzip, Zstd};

    let settings = Server::builder()
        .accept_compressed(Gzip::default())
        .accept_compressed(Deflate::default())
        .accept_compressed(Zstd::default());
    with_server(settings, async |endpoint| {
        let channel = Channel::builder(&endpoint)
            .accept_compressed(Gzip::default())
            .accept_compressed(Deflate::default())
            .accept_compressed(Zstd::default())
            .connect()
            .await
            .unwrap();
        for up in ["gzip", "deflate", "zstd"] {
            for down in ["gzip", "deflate", "zstd"] {
                for message in [even(), uneven(), Raw::default(), Raw::from(vec![1; 3_000_000])] {
                    let asked = request(message.clone(), Compression::encoding(up), down);
                    let response = channel.unary(PATH_UNARY, asked).await.unwrap();
                    assert!(response.get_ref() == &message, "{up} {down}");
                    assert_eq!(seen(&response), as_seen(up, "c", down, 'c'));
                }
            }
        }
    });
}
