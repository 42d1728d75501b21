//! The benchmark service on our server: every method answers with what it was given.

use fulmar::{Replies, Request, Response, Status, Streaming};

use crate::proto::bench_server::Bench;
use crate::proto::{Count, Payload};

/// The handlers. Metadata of a tick whose names begin with `x-` comes back before the reply.
#[derive(Clone, Copy, Debug)]
pub struct Echo;

impl Bench for Echo {
    async fn unary(&self, request: Request<Payload>) -> Result<Response<Payload>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn ping_pong(
        &self,
        mut messages: Request<Streaming<Payload>>,
        replies: &mut Replies<Payload>,
    ) -> Result<(), Status> {
        let mut message = Payload::default();
        while messages.message_into(&mut message).await? {
            replies.send(&message).await?;
        }
        Ok(())
    }

    async fn tick(&self, request: Request<Count>) -> Result<Response<Count>, Status> {
        let mut response = Response::new(*request.get_ref());
        for (name, value) in request.metadata().iter().filter(|(name, _)| name.starts_with("x-")) {
            response.metadata_mut().append_value(name, value).map_err(Status::from_error)?;
        }
        Ok(response)
    }

    async fn ticks(
        &self,
        mut messages: Request<Streaming<Count>>,
        replies: &mut Replies<Count>,
    ) -> Result<(), Status> {
        let mut message = Count::default();
        while messages.message_into(&mut message).await? {
            replies.send(&message).await?;
        }
        Ok(())
    }
}
