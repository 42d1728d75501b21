//! The h2 crate alone, both ends: the header fields and DATA frames of gRPC, made once and sent as often as there are calls.
//! What it leaves out is what a gRPC library adds: encoding, metadata, deadlines, an API.

use std::sync::Arc;

use ::h2::client::{self, SendRequest};
use ::h2::server::{self, SendResponse};
use ::h2::{RecvStream, SendStream};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::on_tokio::{Called, Ends, Listening};
use crate::cell::{Cell, Kind, Transport};
use crate::meter::Meter;
use crate::proto::Payload;

pub(super) struct H2;

/// The same at both ends. Large enough that no cell waits for one.
const WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// As the other peers.
const STREAMS_MAX: u32 = 100_000;

impl Ends for H2 {
    const TRANSPORTS: &'static [Transport] = &[Transport::Tcp];

    async fn serve(listener: Listening, _secured: bool, mut stopped: oneshot::Receiver<()>) -> Called {
        let Listening::Tcp(listener) = listener else { return Err("it listens on TCP only".into()) };
        // Connections end with the run: their clients close them.
        loop {
            tokio::select! {
                accepted = listener.accept() => tokio::spawn(serve_connection(accepted?.0)),
                _ = &mut stopped => return Ok(()),
            };
        }
    }

    async fn call_all(cell: &Cell, meter: &Arc<Meter>, address: &str) -> Called {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (client, connection) = client::Builder::new()
            .initial_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_max_send_streams(STREAMS_MAX as usize)
            .enable_push(false)
            .handshake::<_, Bytes>(stream)
            .await?;
        let connection = tokio::spawn(connection);
        let message = message(cell.payload_bytes);
        let mut callers = JoinSet::new();
        for _ in 0..cell.callers {
            let (client, meter, message) = (client.clone(), Arc::clone(meter), message.clone());
            let request = request(address, cell.kind)?;
            match cell.kind {
                Kind::Unary => callers.spawn(call_unary(client, meter, request, message)),
                Kind::Streaming => callers.spawn(call_streaming(client, meter, request, message)),
            };
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        connection.abort();
        Ok(())
    }
}

/// A message with its prefix.
fn message(payload_bytes: usize) -> Bytes {
    let payload = Payload { body: vec![0; payload_bytes].into() };
    let mut message = BytesMut::with_capacity(5 + payload.encoded_len());
    message.put_u8(0);
    message.put_u32(payload.encoded_len() as u32);
    message.put(payload.encode_to_vec().as_slice());
    message.freeze()
}

fn request(address: &str, kind: Kind) -> Result<Request<()>, http::Error> {
    let method = match kind {
        Kind::Unary => "Unary",
        Kind::Streaming => "PingPong",
    };
    Request::post(format!("http://{address}/fulmar.bench.Bench/{method}"))
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .header("user-agent", "grpc-rust-h2/0.4")
        .header("grpc-accept-encoding", "identity")
        .body(())
}

async fn call_unary(
    client: SendRequest<Bytes>,
    meter: Arc<Meter>,
    request: Request<()>,
    message: Bytes,
) -> Called {
    while meter.running() {
        let began = meter.next().await;
        let (response, mut requests) = client.clone().ready().await?.send_request(request.clone(), false)?;
        requests.send_data(message.clone(), true)?;
        let mut replies = response.await?.into_body();
        let mut missing = message.len();
        while missing > 0 {
            missing -= receive(&mut replies).await?.ok_or("the server ended the reply")?.len();
        }
        let trailers = replies.trailers().await?.ok_or("the server sent no trailers")?;
        if trailers.get("grpc-status").is_none_or(|status| status != "0") {
            return Err("the server sent no status".into());
        }
        meter.end(began);
    }
    Ok(())
}

async fn call_streaming(
    client: SendRequest<Bytes>,
    meter: Arc<Meter>,
    request: Request<()>,
    message: Bytes,
) -> Called {
    let (response, mut requests) = client.ready().await?.send_request(request, false)?;
    let mut replies = response.await?.into_body();
    while meter.running() {
        let began = meter.next().await;
        requests.send_data(message.clone(), false)?;
        let mut missing = message.len();
        while missing > 0 {
            missing -= receive(&mut replies).await?.ok_or("the server ended the stream")?.len();
        }
        meter.end(began);
    }
    Ok(())
}

/// The next DATA of a stream, given back to its windows.
async fn receive(stream: &mut RecvStream) -> Result<Option<Bytes>, ::h2::Error> {
    let Some(bytes) = stream.data().await.transpose()? else { return Ok(None) };
    stream.flow_control().release_capacity(bytes.len())?;
    Ok(Some(bytes))
}

async fn serve_connection(stream: TcpStream) -> Called {
    stream.set_nodelay(true)?;
    let mut connection = server::Builder::new()
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(STREAMS_MAX)
        .handshake(stream)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        let is_unary = request.uri().path().ends_with("/Unary");
        tokio::spawn(answer(request.into_body(), respond, is_unary));
    }
    Ok(())
}

/// Sends back what comes in: a unary request once it is whole, a stream as it comes.
async fn answer(mut requests: RecvStream, mut respond: SendResponse<Bytes>, is_unary: bool) -> Called {
    let response = Response::builder().header("content-type", "application/grpc").body(())?;
    if is_unary {
        let mut message = receive(&mut requests).await?.ok_or("the client sent no message")?;
        while let Some(more) = receive(&mut requests).await? {
            if !more.is_empty() {
                message = [message, more].concat().into();
            }
        }
        let mut replies = respond.send_response(response, false)?;
        replies.send_data(message, false)?;
        return end(&mut replies);
    }
    let mut replies = respond.send_response(response, false)?;
    while let Some(bytes) = receive(&mut requests).await? {
        replies.send_data(bytes, false)?;
    }
    end(&mut replies)
}

fn end(replies: &mut SendStream<Bytes>) -> Called {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    Ok(replies.send_trailers(trailers)?)
}
