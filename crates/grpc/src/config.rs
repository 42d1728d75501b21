//! What a user may set on either end of a connection.

use std::borrow::Cow;

use crate::encoding::Encodings;

/// Settings of a [`Server`](crate::Server) or a [`Client`](crate::Client), for each of its connections.
#[derive(Clone, Debug)]
pub struct Config {
    /// Settings and limits of the HTTP/2 connection below the calls.
    pub http2: fulmar_http2::Config,
    /// The longest message accepted, in bytes without its 5-byte prefix; a longer one ends its call with
    /// `RESOURCE_EXHAUSTED` as soon as its prefix has arrived, or, if it is compressed, as soon as it has unfolded to more. Exactly
    /// this many bytes pass.
    /// Default: 4 MiB, the value of every other gRPC implementation.
    pub receive_message_bytes_max: usize,
    /// The longest message sent, in bytes without its 5-byte prefix and before it is compressed; a longer one ends its call with
    /// `RESOURCE_EXHAUSTED`, and nothing of it is sent. The prefix of a message has room for 4 GiB - 1.
    /// Default: no limit but that one.
    pub send_message_bytes_max: usize,
    /// How many bytes the messages of a connection may have in all that were received and not taken by the application, the
    /// beginnings of unfinished ones included. Above it, and while the thread holds more than
    /// [`Pool::held_bytes_max`](fulmar_base::Pool::held_bytes_max) (1 GiB by default) and no connection of the thread twice as much
    /// as this one, only the call with the oldest unfinished message may receive more, so that something always completes, and a
    /// server refuses new streams (REFUSED_STREAM, which clients may try again). What was under way may still arrive: above either
    /// bound and `receive_message_bytes_max` together, the call that holds most of all others ends with `RESOURCE_EXHAUSTED`, and
    /// what waits to be sent on it is dropped. Messages of a call that is over belong to whoever has them, and do not count.
    /// Default: 64 MiB.
    pub held_bytes_max: usize,
    /// How much of a body that is no gRPC answer (an error page of a proxy) a client quotes in the message of the
    /// status, in bytes. Default: 512.
    pub quoted_body_bytes_max: usize,
    /// What a client calls itself in the `user-agent` of its requests. Default: `fulmar/` and this version.
    pub user_agent: Cow<'static, str>,
    /// The message format this end speaks: the `proto` of `application/grpc+proto`. A server accepts requests with
    /// this subtype or with none. Default: `proto`.
    pub content_subtype: Cow<'static, str>,
    /// The encodings that this end accepts, and those it sends with. Default: none, all messages are plain.
    pub encodings: Encodings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            http2: fulmar_http2::Config::default(),
            receive_message_bytes_max: 4 * 1024 * 1024,
            send_message_bytes_max: usize::MAX,
            held_bytes_max: 64 * 1024 * 1024,
            quoted_body_bytes_max: 512,
            user_agent: Cow::Borrowed(concat!("fulmar/", env!("CARGO_PKG_VERSION"))),
            content_subtype: Cow::Borrowed("proto"),
            encodings: Encodings::default(),
        }
    }
}
