//! tonic, both ends: generated code, one channel, one connection.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use super::on_tokio::{Called, Ends, Listening};
use crate::cell::{Cell, Kind, Transport};
use crate::meter::Meter;
use crate::proto::tonic::bench_client::BenchClient;
use crate::proto::tonic::bench_server::{Bench, BenchServer};
use crate::proto::{Count, Payload};
use crate::secured;

pub(super) struct Tonic;

impl Ends for Tonic {
    const TRANSPORTS: &'static [Transport] = &[Transport::Tcp, Transport::Tls, Transport::Uds];

    async fn serve(listener: Listening, secured: bool, stopped: oneshot::Receiver<()>) -> Called {
        let mut server = Server::builder();
        if secured {
            server = server.tls_config(secured::tonic_server())?;
        }
        let server =
            server.max_concurrent_streams(MAX_CONCURRENT_STREAMS).add_service(BenchServer::new(Echo));
        let stop = async { drop(stopped.await) };
        match listener {
            Listening::Tcp(listener) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                server.serve_with_incoming_shutdown(incoming, stop).await?;
            }
            Listening::Unix(listener, _file) => {
                server.serve_with_incoming_shutdown(UnixListenerStream::new(listener), stop).await?;
            }
        }
        Ok(())
    }

    async fn call_all(cell: &Cell, meter: &Arc<Meter>, address: &str) -> Called {
        let target = match cell.transport {
            Transport::Uds => address.to_owned(),
            Transport::Tls => format!("https://{address}"),
            _ => format!("http://{address}"),
        };
        let mut endpoint = Endpoint::from_shared(target)?.tcp_nodelay(true);
        if cell.transport == Transport::Tls {
            endpoint = endpoint.tls_config(secured::tonic_client())?;
        }
        let channel = endpoint.connect().await?;
        let payload = Payload { body: vec![0; cell.payload_bytes].into() };
        let mut callers = JoinSet::new();
        for _ in 0..cell.callers {
            let (channel, meter, payload) = (channel.clone(), Arc::clone(meter), payload.clone());
            match cell.kind {
                Kind::Unary => callers.spawn(call_unary(channel, meter, payload)),
                Kind::Streaming => callers.spawn(call_streaming(channel, meter, payload)),
            };
        }
        while let Some(caller) = callers.join_next().await {
            caller??;
        }
        Ok(())
    }
}

/// hyper's default of 200 would make most of 512 callers wait for a stream.
const MAX_CONCURRENT_STREAMS: u32 = 100_000;

async fn call_unary(channel: Channel, meter: Arc<Meter>, payload: Payload) -> Called {
    let mut client = BenchClient::new(channel);
    while meter.running() {
        let began = meter.next().await;
        client.unary(payload.clone()).await?;
        meter.end(began);
    }
    Ok(())
}

async fn call_streaming(channel: Channel, meter: Arc<Meter>, payload: Payload) -> Called {
    let (requests, outbound) = mpsc::channel(1);
    let mut client = BenchClient::new(channel);
    let mut replies = client.ping_pong(ReceiverStream::new(outbound)).await?.into_inner();
    while meter.running() {
        let began = meter.next().await;
        requests.send(payload.clone()).await?;
        replies.message().await?.ok_or("the server ended the stream")?;
        meter.end(began);
    }
    Ok(())
}

struct Echo;

#[tonic::async_trait]
impl Bench for Echo {
    type PingPongStream = Streaming<Payload>;
    type TicksStream = Streaming<Count>;

    async fn unary(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ping_pong(
        &self,
        request: Request<Streaming<Payload>>,
    ) -> Result<Response<Self::PingPongStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn tick(&self, request: Request<Count>) -> Result<Response<Count>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ticks(&self, request: Request<Streaming<Count>>) -> Result<Response<Self::TicksStream>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}
