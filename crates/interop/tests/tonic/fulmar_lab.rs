//! The lab on our server.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fulmar::{
    Code, Compress, Compression, MetadataMap, Replies, Request, Response, RunningServer, Server,
    ServerBuilder, Status, Streaming,
};

use crate::journal::Journal;
use crate::proto::lab_server::{Lab, LabServer};
use crate::proto::{Answer, Order};

/// A running server on a thread of its own, stopped when it is dropped.
pub(crate) struct FulmarLab {
    pub(crate) address: SocketAddr,
    pub(crate) journal: Journal,
    server: Mutex<Option<RunningServer>>,
}

impl FulmarLab {
    pub(crate) fn start() -> Self {
        Self::start_with(Server::builder())
    }

    pub(crate) fn start_with(builder: ServerBuilder) -> Self {
        let journal = Journal::default();
        let lab = LabServer::new(Handlers { journal: journal.clone() });
        let server = builder.reactors(1).add_service(lab).bind("127.0.0.1:0").expect("a free port");
        let address = server.local_addr().expect("a bound server");
        let running = server.spawn().expect("a thread for the server");
        Self { address, journal, server: Mutex::new(Some(running)) }
    }

    /// The address as a URI.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Begins to shut down.
    pub(crate) fn shut_down(&self, grace: Duration) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().expect("a server that was not joined").handle().shutdown(grace);
    }

    /// Waits until the server has ended.
    pub(crate) fn join(&self) {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.expect("a server that was not joined").join().expect("no thread of the server failed");
    }
}

struct Handlers {
    journal: Journal,
}

impl Lab for Handlers {
    async fn echo(&self, request: Request<Order>) -> Result<Response<Answer>, Status> {
        let guard = self.journal.begin("echo");
        let order = request.get_ref();
        end(order, request.metadata()).await?;
        guard.finish();
        let received_bytes = order.body.len() as u64;
        let mut response = Response::new(Answer { body: body_of(order), number: 1, received_bytes });
        give_back_initial(&request, response.metadata_mut());
        give_back(request.metadata(), "x-trailing", response.trailers_mut());
        tell_flags(response.trailers_mut(), &flag(request.was_compressed()).to_string());
        if let Some(wanted) = wanted(request.metadata()) {
            response.set_compression(wanted);
        }
        Ok(response)
    }

    async fn collect(&self, mut orders: Request<Streaming<Order>>) -> Result<Response<Answer>, Status> {
        let guard = self.journal.begin("collect");
        let mut answer = Answer::default();
        let mut flags = String::new();
        while let Some(order) = orders.message().await? {
            flags.push(flag(orders.get_ref().last_was_compressed()));
            answer.number += 1;
            answer.received_bytes += order.body.len() as u64;
            end(&order, orders.metadata()).await?;
        }
        guard.finish();
        let mut response = Response::new(answer);
        give_back_initial(&orders, response.metadata_mut());
        give_back(orders.metadata(), "x-trailing", response.trailers_mut());
        tell_flags(response.trailers_mut(), &flags);
        if let Some(wanted) = wanted(orders.metadata()) {
            response.set_compression(wanted);
        }
        Ok(response)
    }

    async fn produce(&self, request: Request<Order>, replies: &mut Replies<Answer>) -> Result<(), Status> {
        let guard = self.journal.begin("produce");
        replies.metadata(|metadata| give_back_initial(&request, metadata));
        replies.trailers(|trailers| {
            give_back(request.metadata(), "x-trailing", trailers);
            tell_flags(trailers, &flag(request.was_compressed()).to_string());
        });
        if let Some(wanted) = wanted(request.metadata()) {
            replies.set_compression(&wanted)?;
        }
        answer(request.get_ref(), request.metadata(), replies).await?;
        guard.finish();
        Ok(())
    }

    async fn converse(
        &self,
        mut orders: Request<Streaming<Order>>,
        replies: &mut Replies<Answer>,
    ) -> Result<(), Status> {
        let guard = self.journal.begin("converse");
        replies.metadata(|metadata| give_back_initial(&orders, metadata));
        replies.trailers(|trailers| give_back(orders.metadata(), "x-trailing", trailers));
        if let Some(wanted) = wanted(orders.metadata()) {
            replies.set_compression(&wanted)?;
        }
        replies.send_metadata().await?;
        let mut flags = String::new();
        while let Some(order) = orders.message().await? {
            flags.push(flag(orders.get_ref().last_was_compressed()));
            answer(&order, orders.metadata(), replies).await?;
        }
        replies.trailers(|trailers| tell_flags(trailers, &flags));
        guard.finish();
        Ok(())
    }
}

/// Sends what an order asks for; of the replies, every second one plain if the client wants that.
async fn answer(order: &Order, metadata: &MetadataMap, replies: &mut Replies<Answer>) -> Result<(), Status> {
    let is_alternating = metadata.get("x-plain") == Some("every second");
    for number in 1..=order.replies {
        let compress =
            if is_alternating && number.is_multiple_of(2) { Compress::No } else { Compress::Default };
        let answer = Answer { body: body_of(order), number, received_bytes: 0 };
        replies.send_with(&answer, compress).await?;
    }
    end(order, metadata).await
}

/// `c` for a message that came compressed, `p` for a plain one.
fn flag(was_compressed: bool) -> char {
    if was_compressed { 'c' } else { 'p' }
}

/// Says in which form the messages of the client came.
fn tell_flags(trailers: &mut MetadataMap, flags: &str) {
    trailers.insert("x-flags", flags).expect("letters are legal");
}

/// How the client wants its replies compressed.
fn wanted(metadata: &MetadataMap) -> Option<Compression> {
    match metadata.get("x-want")? {
        "off" => Some(Compression::Off),
        "on" => Some(Compression::On),
        name => Some(Compression::encoding(name.to_owned())),
    }
}

fn body_of(order: &Order) -> Vec<u8> {
    if order.reply_bytes == 0 { order.body.clone() } else { vec![7; order.reply_bytes as usize] }
}

/// What comes after the replies to an order: a panic, a failure, nothing ever, or the next order.
async fn end(order: &Order, metadata: &MetadataMap) -> Result<(), Status> {
    assert!(!order.panic, "the order was to panic");
    if let Some(failure) = &order.failure {
        let mut trailing = MetadataMap::new();
        give_back(metadata, "x-trailing", &mut trailing);
        return Err(Status::new(Code::from_i32(failure.code), failure.message.clone())
            .with_details(failure.details.clone())
            .with_metadata(trailing));
    }
    if order.hang {
        pending::<()>().await;
    }
    Ok(())
}

fn give_back_initial<T>(request: &Request<T>, into: &mut MetadataMap) {
    give_back(request.metadata(), "x-initial", into);
    if let Some(timeout) = request.timeout() {
        into.append("x-timeout", &timeout.as_micros().to_string()).expect("digits are legal");
    }
    let peer = request.peer().address().expect("a TCP connection has a peer");
    into.append("x-peer", &peer.to_string()).expect("an address is legal");
}

/// Copies the values of the ASCII key and of the binary key of this name.
fn give_back(metadata: &MetadataMap, name: &str, into: &mut MetadataMap) {
    for value in metadata.get_all(name) {
        into.append(name, value).expect("legal when it came");
    }
    let name = format!("{name}-bin");
    for value in metadata.get_all_bin(&name) {
        into.append_bin(&name, &value).expect("legal when it came");
    }
}
