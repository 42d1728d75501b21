//! Fulmar, both ends.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use fulmar::{Encoded, LocalReactor, Replies, Request, Response, Server, ServerHandle, Status};
use fulmar_benches::proto::bulk::bulk_client::BulkClient;
use fulmar_benches::proto::bulk::bulk_server::{Bulk, BulkServer};
use fulmar_benches::proto::bulk::{Order, Part};

use crate::plan::{Peer, Threads};
use crate::{Carried, Latencies, Ran, Rate, Setting};

/// The largest message that is tried, and a little more.
const MESSAGE_BYTES_MAX: usize = 65 * 1024 * 1024;

struct Handlers;

impl Bulk for Handlers {
    async fn download(&self, request: Request<Order>, parts: &mut Replies<Part>) -> Result<(), Status> {
        let part = Part { body: Bytes::from(vec![7; request.get_ref().body_bytes as usize]) };
        if request.get_ref().is_encoded {
            let encoded = Encoded::new(&part);
            loop {
                parts.send_encoded(&encoded).await?;
            }
        }
        loop {
            parts.send(&part).await?;
        }
    }

    async fn echo(&self, request: Request<Part>) -> Result<Response<Part>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

/// Ends a server that has a thread of its own.
struct Ended(Option<(ServerHandle, std::thread::JoinHandle<()>)>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some((handle, thread)) = self.0.take() {
            handle.shutdown(std::time::Duration::ZERO);
            let _ = thread.join();
        }
    }
}

fn start(setting: Setting) -> Ran<(LocalReactor, BulkClient, Ended)> {
    let server = Server::builder().reactors(1).add_service(BulkServer::new(Handlers)).bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", server.local_addr()?);
    let mut reactor = LocalReactor::new()?;
    let ended = if setting.threads == Threads::Two {
        let handle = server.handle();
        Ended(Some((handle, std::thread::spawn(move || drop(server.run())))))
    } else {
        reactor.serve(server)?;
        Ended(None)
    };
    let channel = fulmar::Channel::builder(endpoint).receive_message_bytes_max(MESSAGE_BYTES_MAX);
    let client = BulkClient::new(reactor.block_on(channel.connect())?);
    Ok((reactor, client, ended))
}

pub(crate) fn download(setting: Setting) -> Ran<Carried> {
    let (mut reactor, client, _ended) = start(setting)?;
    reactor.block_on(async {
        let order =
            Order { body_bytes: setting.body_bytes as u32, is_encoded: setting.peer == Peer::Encoded };
        let mut parts = client.download(order).await?.into_inner();
        let (mut part, mut rate) = (Part::default(), Rate::new(setting.time));
        while parts.message_into(&mut part).await? {
            if !rate.add(part.body.len()) {
                break;
            }
        }
        Ok(rate.carried())
    })
}

pub(crate) fn small_calls(setting: Setting, streams: usize, calls: usize) -> Ran<Latencies> {
    let (mut reactor, client, _ended) = start(setting)?;
    let carried = Rc::new(Cell::new(0_u64));
    for _ in 0..streams {
        let (client, carried) = (client.clone(), carried.clone());
        let order = Order { body_bytes: setting.body_bytes as u32, is_encoded: false };
        reactor.spawn(async move {
            let Ok(parts) = client.download(order).await else { return };
            let (mut parts, mut part) = (parts.into_inner(), Part::default());
            while parts.message_into(&mut part).await.unwrap_or_default() {
                carried.set(carried.get() + part.body.len() as u64);
            }
        });
    }
    reactor.block_on(async {
        let small = Part { body: Bytes::from_static(b"small") };
        let warm_until = Instant::now() + setting.time / 5;
        while Instant::now() < warm_until {
            client.echo(small.clone()).await?;
        }
        let (before, began) = (carried.get(), Instant::now());
        let mut samples = Vec::with_capacity(calls);
        for _ in 0..calls {
            let called = Instant::now();
            client.echo(small.clone()).await?;
            samples.push(called.elapsed());
        }
        Ok(Latencies::new(samples, carried.get() - before, began.elapsed()))
    })
}
