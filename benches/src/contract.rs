//! The service of `proto/contract.proto` on our server: the kinds of calls and of ends that the benchmarks do not have.

use std::future::pending;

use bytes::Bytes;
use fulmar::{Code, Replies, Request, Response, Status, Streaming};

use crate::proto::contract::contract_server::Contract;
use crate::proto::contract::{Mixed, Tick};

/// How many ticks of a download are padded.
const PADDED: u64 = 1_000;

/// The handlers.
#[derive(Clone, Copy, Debug)]
pub struct Handlers;

impl Contract for Handlers {
    async fn upload(&self, mut ticks: Request<Streaming<Tick>>) -> Result<Response<Tick>, Status> {
        let (mut tick, mut number) = (Tick::default(), 0);
        while ticks.message_into(&mut tick).await? {
            number += 1;
        }
        Ok(Response::new(Tick { number, ..Tick::default() }))
    }

    async fn download(&self, request: Request<Tick>, ticks: &mut Replies<Tick>) -> Result<(), Status> {
        let Tick { number, padding } = request.into_inner();
        for number in 0..number {
            let padding = if number < PADDED { padding.clone() } else { Bytes::new() };
            ticks.send(&Tick { number, padding }).await?;
        }
        Ok(())
    }

    async fn mix(
        &self,
        mut messages: Request<Streaming<Mixed>>,
        replies: &mut Replies<Mixed>,
    ) -> Result<(), Status> {
        let mut message = Mixed::default();
        while messages.message_into(&mut message).await? {
            replies.send(&message).await?;
        }
        Ok(())
    }

    async fn fail(&self, _request: Request<Tick>) -> Result<Response<Tick>, Status> {
        Err(Status::new(Code::NotFound, "no bird of that number was ever ringed"))
    }

    async fn hang(&self, _request: Request<Tick>) -> Result<Response<Tick>, Status> {
        pending().await
    }
}
