//! tonic, both ends, with windows large enough that loopback does not wait for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use bytes::Bytes;
use fulmar_benches::proto::bulk::{Order, Part};
use fulmar_benches::proto::tonic::bulk::bulk_client::BulkClient;
use fulmar_benches::proto::tonic::bulk::bulk_server::{Bulk, BulkServer};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::plan::Threads;
use crate::{Carried, Latencies, Ran, Rate, Setting};

const WINDOW_BYTES: u32 = 4 * 1024 * 1024;

struct Handlers;

#[tonic::async_trait]
impl Bulk for Handlers {
    type DownloadStream = tokio_stream::Iter<std::iter::Repeat<Result<Part, Status>>>;

    async fn download(&self, request: Request<Order>) -> Result<Response<Self::DownloadStream>, Status> {
        let part = Part { body: Bytes::from(vec![7; request.get_ref().body_bytes as usize]) };
        Ok(Response::new(tokio_stream::iter(std::iter::repeat(Ok(part)))))
    }

    async fn echo(&self, request: Request<Part>) -> Result<Response<Part>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

fn runtime() -> Ran<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

async fn serve(listener: TcpListener) -> Ran<()> {
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder()
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES);
    let mut server = server;
    Ok(server.add_service(BulkServer::new(Handlers)).serve_with_incoming(incoming).await?)
}

/// Runs `call` beside a server, on its thread or on another.
fn with_server<T, F: Future<Output = Ran<T>>>(
    setting: Setting,
    call: impl FnOnce(BulkClient<Channel>) -> F,
) -> Ran<T> {
    let (callers, listener) = (runtime()?, std::net::TcpListener::bind("127.0.0.1:0")?);
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let mut beside = None;
    if setting.threads == Threads::Two {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let Ok(runtime) = runtime() else { return };
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! { _ = serve(listener) => {}, _ = stopped => {} }
            });
        });
        beside = Some((stop, thread));
    } else {
        let guard = callers.enter();
        let listener = TcpListener::from_std(listener)?;
        callers.spawn(serve(listener));
        drop(guard);
    }
    let called = callers.block_on(async {
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .tcp_nodelay(true)
            .initial_connection_window_size(WINDOW_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .connect()
            .await?;
        call(BulkClient::new(channel).max_decoding_message_size(65 * 1024 * 1024)).await
    });
    drop(callers);
    if let Some((stop, thread)) = beside {
        drop(stop);
        let _ = thread.join();
    }
    called
}

pub(crate) fn download(setting: Setting) -> Ran<Carried> {
    with_server(setting, async |mut client| {
        let order = Order { body_bytes: setting.body_bytes as u32, is_encoded: false };
        let mut parts = client.download(order).await?.into_inner();
        let mut rate = Rate::new(setting.time);
        while let Some(part) = parts.message().await? {
            if !rate.add(part.body.len()) {
                break;
            }
        }
        Ok(rate.carried())
    })
}

pub(crate) fn small_calls(setting: Setting, streams: usize, calls: usize) -> Ran<Latencies> {
    with_server(setting, async |mut client| {
        let carried = Arc::new(AtomicU64::new(0));
        for _ in 0..streams {
            let (mut client, carried) = (client.clone(), carried.clone());
            let order = Order { body_bytes: setting.body_bytes as u32, is_encoded: false };
            tokio::spawn(async move {
                let Ok(parts) = client.download(order).await else { return };
                let mut parts = parts.into_inner();
                while let Ok(Some(part)) = parts.message().await {
                    carried.fetch_add(part.body.len() as u64, Relaxed);
                }
            });
        }
        let small = Part { body: Bytes::from_static(b"small") };
        let warm_until = Instant::now() + setting.time / 5;
        while Instant::now() < warm_until {
            client.echo(small.clone()).await?;
        }
        let (before, began) = (carried.load(Relaxed), Instant::now());
        let mut samples = Vec::with_capacity(calls);
        for _ in 0..calls {
            let called = Instant::now();
            client.echo(small.clone()).await?;
            samples.push(called.elapsed());
        }
        Ok(Latencies::new(samples, carried.load(Relaxed) - before, began.elapsed()))
    })
}
