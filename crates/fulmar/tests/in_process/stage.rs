//! Where plays are performed: a server and a channel to it, arranged in one way or another.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, BufMut};
use fulmar::{
    CallEnd, Channel, LocalReactor, MetadataMap, Raw, Replies, Request, Response, Router, Server,
    ServerBuilder, ServerHandle, Service, Status, Streaming,
};

use crate::common::block_on;

pub(crate) const ECHO: &str = "/play.Play/Echo";
pub(crate) const DO: &str = "/play.Play/Do";
pub(crate) const WAIT: &str = "/play.Play/Wait";
pub(crate) const ODD: &str = "/play.Play/Odd";
pub(crate) const TEXT: &str = "/play.Play/Text";
pub(crate) const COUNT: &str = "/play.Play/Count";
pub(crate) const SUM: &str = "/play.Play/Sum";
pub(crate) const CHAT: &str = "/play.Play/Chat";

/// How the two ends are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    TcpOneThread,
    TcpThreads,
    InProcessOneThread,
    InProcessThreads,
}

pub(crate) const ARRANGEMENTS: [Arrangement; 4] = [
    Arrangement::TcpOneThread,
    Arrangement::TcpThreads,
    Arrangement::InProcessOneThread,
    Arrangement::InProcessThreads,
];

impl Arrangement {
    pub(crate) fn is_in_process(self) -> bool {
        matches!(self, Self::InProcessOneThread | Self::InProcessThreads)
    }
}

/// Lines that are written from anywhere.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A gate at which handlers wait.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<(usize, Vec<Waker>)>>);

impl Gate {
    /// Lets so many through.
    pub(crate) fn open(&self, count: usize) {
        let wakers = {
            let mut state = self.0.lock().unwrap();
            state.0 += count;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) async fn pass(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap();
            if state.0 > 0 {
                state.0 -= 1;
                return Poll::Ready(());
            }
            state.1.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// What a play has at hand.
#[derive(Clone)]
pub(crate) struct Stage {
    pub(crate) channel: Channel,
    pub(crate) handle: ServerHandle,
    /// What callers see.
    pub(crate) log: Log,
    /// What handlers see.
    pub(crate) handlers: Log,
    pub(crate) gate: Gate,
}

pub(crate) type Play = fn(Stage) -> Pin<Box<dyn Future<Output = ()>>>;

/// Performs a play, and returns what was seen: by callers, then by handlers.
pub(crate) fn perform(
    arrangement: Arrangement,
    build: fn(ServerBuilder, &Log) -> ServerBuilder,
    play: Play,
) -> Vec<String> {
    let (log, handlers, gate) = (Log::default(), Log::default(), Gate::default());
    let wings = Arc::new(Wings { log: handlers.clone(), gate: gate.clone(), channel: Mutex::default() });
    let service = Player(wings.clone());
    let builder = build(Server::builder().add_service(service), &handlers);
    let server = builder.bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", server.local_addr().unwrap());
    let go = async |handle: ServerHandle| {
        let channel = match arrangement.is_in_process() {
            true => handle.in_process(),
            false => Channel::connect(&endpoint).await.unwrap(),
        };
        // The first call of a channel makes the connection, and is none of the play's.
        let _ = channel.unary::<Raw, Raw>(ECHO, Raw::default()).await;
        handlers.take();
        *wings.channel.lock().unwrap() = Some(channel.clone());
        let stage =
            Stage { channel, handle, log: log.clone(), handlers: handlers.clone(), gate: gate.clone() };
        play(stage).await;
        *wings.channel.lock().unwrap() = None;
    };
    match arrangement {
        Arrangement::TcpOneThread | Arrangement::InProcessOneThread => {
            let mut reactor = LocalReactor::new().unwrap();
            let handle = reactor.serve(server).unwrap();
            reactor.block_on(go(handle));
        }
        Arrangement::TcpThreads | Arrangement::InProcessThreads => {
            let running = server.spawn().unwrap();
            block_on(go(running.handle()));
            let _ = running.shutdown(Duration::ZERO);
        }
    }
    let lines = log.take().into_iter().map(|line| format!("caller: {line}"));
    let lines = lines.chain(handlers.take().into_iter().map(|line| format!("handler: {line}")));
    let name = endpoint.trim_start_matches("http://");
    lines
        .map(|line| line.replace(&endpoint, "SERVER").replace("the in-process server", "SERVER"))
        .map(|line| line.replace(name, "AUTHORITY").replace("localhost", "AUTHORITY"))
        .collect()
}

/// Metadata as a line, in its order.
pub(crate) fn shown(metadata: &MetadataMap) -> String {
    let fields = metadata.raw_iter().map(|(name, value, sensitive)| {
        let mark = if sensitive { "!" } else { "" };
        format!("{mark}{}={}", name.escape_ascii(), value.escape_ascii())
    });
    let text = fields.collect::<Vec<_>>().join(" ");
    let own = metadata.raw_iter().filter(|(name, ..)| *name != b":authority");
    let bytes: usize = own.map(|(name, value, _)| name.len() + value.len()).sum();
    if bytes > 300 { format!("{} fields, {bytes} bytes, {}", metadata.len(), &text[..80]) } else { text }
}

/// A status as a line, with all that came with it.
pub(crate) fn shown_status(status: &Status) -> String {
    let mut text = format!("{status} details {:?} trailers [{}]", status.details(), shown(status.metadata()));
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        text.push_str(&format!(" because {error}"));
        cause = error.source();
    }
    text
}

/// A response as a line.
pub(crate) fn shown_response(response: &Result<Response<Raw>, Status>) -> String {
    match response {
        Ok(response) => {
            let bytes = response.get_ref().as_ref();
            let hash =
                bytes.iter().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            format!(
                "{} bytes {hash:x} metadata [{}] trailers [{}] encoding {:?} {}",
                bytes.len(),
                shown(response.metadata()),
                shown(response.trailers()),
                response.encoding(),
                response.was_compressed()
            )
        }
        Err(status) => shown_status(status),
    }
}

/// What the handlers share.
pub(crate) struct Wings {
    log: Log,
    gate: Gate,
    /// To this server.
    channel: Mutex<Option<Channel>>,
}

struct Player(Arc<Wings>);

/// Tells of its end.
struct Leaving(Log, fulmar::Cancellation);

impl Drop for Leaving {
    fn drop(&mut self) {
        // Which of the two clocks of a call runs out first is no end's to say.
        let told = match self.1.reason() {
            Some(CallEnd::DeadlineExceeded) => Some("too late".to_owned()),
            end => end.map(|end| end.to_string()),
        };
        self.0.add(format!("left: {told:?}"));
    }
}

fn enter<T>(wings: &Wings, request: &Request<T>) {
    let left = request.time_left().map(|left| left > Duration::ZERO);
    let (encoding, was_compressed) = (request.encoding(), request.was_compressed());
    wings.log.add(format!(
        "{} [{}] time left {left:?} timeout {} encoding {encoding:?} {was_compressed} authority {:?}",
        request.path(),
        shown(request.metadata()),
        request.timeout().is_some(),
        request.authority()
    ));
}

impl Service for Player {
    fn name(&self) -> &'static str {
        "play.Play"
    }

    fn register(&self, router: &mut Router) {
        router.unary(ECHO, &self.0, |wings, request: Request<Raw>| async move {
            enter(&wings, &request);
            let mut response = Response::new(request.get_ref().clone());
            for (name, value, _) in request.metadata().raw_iter() {
                let name = String::from_utf8_lossy(name).into_owned();
                if name.ends_with("-bin") {
                    response.metadata_mut().append_bin(&name, b"\x00\xff from the handler").unwrap();
                } else if name.starts_with("x-") {
                    response.metadata_mut().append(&name, &String::from_utf8_lossy(value)).unwrap();
                    response.trailers_mut().append(&format!("{name}-behind"), "it").unwrap();
                }
            }
            Ok::<_, Status>(response)
        });
        router.unary(DO, &self.0, |wings, request: Request<Raw>| async move {
            enter(&wings, &request);
            let order = String::from_utf8_lossy(request.get_ref().as_ref()).into_owned();
            do_as_told(&wings, &order).await
        });
        router.unary(WAIT, &self.0, |wings, request: Request<Raw>| async move {
            enter(&wings, &request);
            let _leaving = Leaving(wings.log.clone(), request.cancellation());
            wings.gate.pass().await;
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
        router.unary(ODD, &self.0, |_, request: Request<Raw>| async move {
            Ok::<_, Status>(Response::new(Odd(request.get_ref().as_ref().len())))
        });
        router.unary(TEXT, &self.0, |wings, request: Request<String>| async move {
            wings.log.add(format!("text {}", request.get_ref()));
            Ok::<_, Status>(Response::new(request.into_inner()))
        });
        router.server_streaming(
            COUNT,
            &self.0,
            |wings, request: Request<Raw>, mut replies: Replies<Raw>| async move {
                enter(&wings, &request);
                let _leaving = Leaving(wings.log.clone(), request.cancellation());
                for number in 0..request.get_ref().as_ref().len() {
                    replies.send(&Raw::from(vec![7; number * 1_000])).await?;
                }
                replies.trailers(|trailers| trailers.insert("x-end", "of count")).unwrap();
                Ok(())
            },
        );
        router.client_streaming(SUM, &self.0, |wings, mut requests: Request<Streaming<Raw>>| async move {
            enter(&wings, &requests);
            let mut bytes = 0;
            while let Some(message) = requests.message().await? {
                bytes += message.as_ref().len();
            }
            Ok(Response::new(Raw::from(bytes.to_string().into_bytes())))
        });
        router.bidi(
            CHAT,
            &self.0,
            |wings, mut requests: Request<Streaming<Raw>>, mut replies: Replies<Raw>| async move {
                enter(&wings, &requests);
                let _leaving = Leaving(wings.log.clone(), requests.cancellation());
                while let Some(message) = requests.message().await? {
                    replies.send(&message).await?;
                }
                Err(Status::aborted("enough of it"))
            },
        );
    }
}

/// What a caller may ask for.
async fn do_as_told(wings: &Wings, order: &str) -> Result<Response<Raw>, Status> {
    let (what, rest) = order.split_once(' ').unwrap_or((order, ""));
    let number = || rest.parse::<usize>().unwrap();
    let mut response = Response::new(Raw::default());
    match what {
        "ask" => {
            let channel = wings.channel.lock().unwrap().clone().unwrap();
            return channel.unary(DO, Raw::from(rest.as_bytes().to_vec())).await;
        }
        "hang" => std::future::pending().await,
        "reply" => response = Response::new(Raw::from(vec![9; number()])),
        "fail" => {
            let code = fulmar::Code::from_i32(number() as i32);
            return Err(Status::new(code, format!("\tcode {rest}: zu groß ☺ 100 %\r\n")));
        }
        "fail-long" => return Err(Status::aborted("é%".repeat(number()))),
        "fail-richly" => {
            let mut status =
                Status::with_code_and_details(fulmar::Code::DataLoss, "rich", vec![1, 2, 3, 0, 255]);
            status.metadata_mut().insert("x-of-status", "yes").unwrap();
            status.metadata_mut().append_bin("x-of-status-bin", b"\x01").unwrap();
            return Err(status.with_source("what nobody else sees"));
        }
        "fail-ok" => return Err(Status::new(fulmar::Code::Ok, "no failure at all")),
        "panic" => panic!("the handler has had enough"),
        "panic-late" => {
            later(3).await;
            panic!("the handler has had enough at last");
        }
        "later" => {
            later(number()).await;
            response = Response::new(Raw::from(b"at last".to_vec()));
        }
        "metadata" => fill(response.metadata_mut(), number(), 100),
        "many" => fill(response.metadata_mut(), number(), 1),
        "trailers" => fill(response.trailers_mut(), number(), 100),
        "many-trailers" => fill(response.trailers_mut(), number(), 1),
        "fail-metadata" => {
            let mut status = Status::aborted("with much metadata".repeat(40));
            fill(status.metadata_mut(), number(), 100);
            return Err(status);
        }
        "compress" => response.set_compression(fulmar::Compression::encoding(rest.to_owned())),
        "plain" => response.set_compression(fulmar::Compression::Off),
        other => return Err(Status::invalid_argument(format!("what is {other}?"))),
    }
    wings.log.add("done");
    Ok(response)
}

fn fill(metadata: &mut MetadataMap, count: usize, bytes: usize) {
    for number in 0..count {
        metadata.append(&format!("x-{number}"), &"v".repeat(bytes)).unwrap();
    }
}

/// Is polled so often before it is done.
pub(crate) async fn later(polls: usize) {
    for _ in 0..polls {
        let mut is_woken = false;
        std::future::poll_fn(|cx| {
            if std::mem::replace(&mut is_woken, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// Polls a future that has something else to wait for, until it is ready or has been polled so often.
pub(crate) async fn poll_some<F: Future + Unpin>(future: &mut F, polls: usize) -> Poll<F::Output> {
    for _ in 0..polls {
        let polled =
            std::future::poll_fn(|cx: &mut Context<'_>| Poll::Ready(Pin::new(&mut *future).poll(cx))).await;
        if polled.is_ready() {
            return polled;
        }
        later(1).await;
    }
    Poll::Pending
}

/// A message that does what messages should not.
#[derive(Debug, Default)]
pub(crate) struct Odd(pub(crate) usize);

/// Encodes to less than it says.
pub(crate) const TOO_SHORT: usize = 1;
/// Encodes to more than it says.
pub(crate) const TOO_LONG: usize = 2;
/// Panics when it is encoded.
pub(crate) const PANICS: usize = 3;

impl prost::Message for Odd {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match self.0 {
            TOO_SHORT => buf.put_slice(&[8; 99]),
            TOO_LONG => buf.put_slice(&[8; 101]),
            _ => panic!("it will not be encoded"),
        }
    }

    fn merge_field(
        &mut self,
        _: u32,
        _: prost::encoding::WireType,
        _: &mut impl Buf,
        _: prost::encoding::DecodeContext,
    ) -> Result<(), prost::DecodeError> {
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        100
    }

    fn clear(&mut self) {}
}
