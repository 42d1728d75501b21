//! The lab on tonic's server.

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::journal::Journal;
use crate::proto::tonic::lab_server::{Lab, LabServer};
use crate::proto::{Answer, Order};

/// A running server on a thread of its own, stopped when it is dropped.
pub(crate) struct TonicLab {
    pub(crate) address: SocketAddr,
    pub(crate) journal: Journal,
    running: Mutex<Option<(oneshot::Sender<()>, JoinHandle<()>)>>,
}

/// More than any test sends; tonic's default is 4 MiB, and the tests of limits are about ours.
const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Sixteen times that of a stream: tonic's defaults give both 1 MiB, and then a stream that nobody reads stops all others.
const CONNECTION_WINDOW_BYTES: u32 = 16 * 1024 * 1024;

impl TonicLab {
    pub(crate) fn start() -> Self {
        Self::start_with(|lab| lab)
    }

    pub(crate) fn start_with(settings: impl FnOnce(LabServer<Handlers>) -> LabServer<Handlers>) -> Self {
        Self::start_as(Server::builder(), settings)
    }

    /// The same over TLS.
    pub(crate) fn start_secured(tls: ServerTlsConfig) -> Self {
        let server = Server::builder().tls_config(tls).expect("the configuration serves");
        Self::start_as(server, |lab| lab)
    }

    fn start_as(server: Server, settings: impl FnOnce(LabServer<Handlers>) -> LabServer<Handlers>) -> Self {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a tokio runtime");
        let incoming = {
            let _guard = runtime.enter();
            TcpIncoming::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port").with_nodelay(Some(true))
        };
        let address = incoming.local_addr().expect("a bound listener");
        let journal = Journal::default();
        let lab = settings(LabServer::new(Handlers { journal: journal.clone() }))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX);
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let serve = server
                .max_concurrent_streams(2_000)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .add_service(lab)
                .serve_with_incoming(incoming);
            runtime.block_on(async {
                tokio::select! {
                    served = serve => served.expect("tonic serves"),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_secs(5)); // drops the connections too
        });
        Self { address, journal, running: Mutex::new(Some((stop, thread))) }
    }

    /// Closes the listener and every connection, and waits until that is done.
    pub(crate) fn stop(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((stop, thread)) = running {
            drop(stop);
            drop(thread.join());
        }
    }

    /// The address as a URI.
    pub(crate) fn uri(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for TonicLab {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The handlers. A client that says `x-want: off` gets its reply uncompressed.
#[derive(Debug)]
pub(crate) struct Handlers {
    journal: Journal,
}

type Answers = Pin<Box<dyn tokio_stream::Stream<Item = Result<Answer, Status>> + Send>>;

#[tonic::async_trait]
impl Lab for Handlers {
    type ProduceStream = Answers;
    type ConverseStream = Answers;

    async fn echo(&self, request: Request<Order>) -> Result<Response<Answer>, Status> {
        let guard = self.journal.begin("echo");
        let metadata = metadata_of(&request);
        let order = request.into_inner();
        end(&order, &metadata).await?;
        guard.finish();
        let received_bytes = order.body.len() as u64;
        let mut response = Response::new(Answer { body: body_of(&order), number: 1, received_bytes });
        give_back_initial(&metadata, response.metadata_mut());
        if metadata.get("x-want").is_some_and(|wanted| wanted == "off") {
            response.disable_compression();
        }
        Ok(response)
    }

    async fn collect(&self, request: Request<Streaming<Order>>) -> Result<Response<Answer>, Status> {
        let guard = self.journal.begin("collect");
        let metadata = metadata_of(&request);
        let mut orders = request.into_inner();
        let mut answer = Answer::default();
        while let Some(order) = orders.message().await? {
            answer.number += 1;
            answer.received_bytes += order.body.len() as u64;
            end(&order, &metadata).await?;
        }
        guard.finish();
        let mut response = Response::new(answer);
        give_back_initial(&metadata, response.metadata_mut());
        if metadata.get("x-want").is_some_and(|wanted| wanted == "off") {
            response.disable_compression();
        }
        Ok(response)
    }

    async fn produce(&self, request: Request<Order>) -> Result<Response<Answers>, Status> {
        let metadata = metadata_of(&request);
        let (orders, received) = mpsc::channel(1);
        orders.try_send(Ok(request.into_inner())).expect("an empty channel");
        Ok(self.answer("produce", metadata, Orders::One(received)))
    }

    async fn converse(&self, request: Request<Streaming<Order>>) -> Result<Response<Answers>, Status> {
        let metadata = metadata_of(&request);
        Ok(self.answer("converse", metadata, Orders::Many(Box::new(request.into_inner()))))
    }
}

enum Orders {
    One(mpsc::Receiver<Result<Order, Status>>),
    Many(Box<Streaming<Order>>),
}

impl Orders {
    async fn next(&mut self) -> Result<Option<Order>, Status> {
        match self {
            Self::One(order) => order.recv().await.transpose(),
            Self::Many(orders) => orders.message().await,
        }
    }
}

impl Handlers {
    /// Answers the orders from a task that ends when the client takes no more answers.
    fn answer(&self, method: &'static str, metadata: MetadataMap, mut orders: Orders) -> Response<Answers> {
        let guard = self.journal.begin(method);
        let (answers, outgoing) = mpsc::channel(1);
        let mut response = Response::new(Box::pin(ReceiverStream::new(outgoing)) as Answers);
        give_back_initial(&metadata, response.metadata_mut());
        if metadata.get("x-want").is_some_and(|wanted| wanted == "off") {
            response.disable_compression();
        }
        tokio::spawn(async move {
            let failures = answers.clone();
            let answer_all = async {
                while let Some(order) = orders.next().await? {
                    for number in 1..=order.replies {
                        let answer = Answer { body: body_of(&order), number, received_bytes: 0 };
                        drop(answers.send(Ok(answer)).await);
                    }
                    end(&order, &metadata).await?;
                }
                Ok(())
            };
            tokio::select! {
                answered = answer_all => {
                    guard.finish();
                    if let Err(status) = answered {
                        drop(failures.send(Err(status)).await);
                    }
                }
                () = failures.closed() => drop(guard),
            }
        });
        response
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
        for value in metadata.get_all("x-trailing") {
            trailing.append("x-trailing", value.clone());
        }
        for value in metadata.get_all_bin("x-trailing-bin") {
            trailing.append_bin("x-trailing-bin", value.clone());
        }
        return Err(Status::with_details_and_metadata(
            Code::from_i32(failure.code),
            failure.message.clone(),
            failure.details.clone().into(),
            trailing,
        ));
    }
    if order.hang {
        pending::<()>().await;
    }
    Ok(())
}

/// The metadata of a request, and the address it came from under `x-peer`.
fn metadata_of<T>(request: &Request<T>) -> MetadataMap {
    let mut metadata = request.metadata().clone();
    let peer = request.remote_addr().expect("a TCP connection has a peer").to_string();
    metadata.insert("x-peer", peer.parse().expect("an address is legal"));
    metadata
}

fn give_back_initial(metadata: &MetadataMap, into: &mut MetadataMap) {
    for value in metadata.get_all("x-initial") {
        into.append("x-initial", value.clone());
    }
    for value in metadata.get_all_bin("x-initial-bin") {
        into.append_bin("x-initial-bin", value.clone());
    }
    for (name, back) in [("grpc-timeout", "x-timeout"), ("grpc-encoding", "x-encoding"), ("x-peer", "x-peer")]
    {
        if let Some(value) = metadata.get(name) {
            into.append(back, value.clone());
        }
    }
}
