//! Who calls, said with each call.

use std::future::Future;

use fulmar_grpc::{MetadataMap, Status};

use super::{CallHead, CallInfo, Interceptor};
use crate::control_plane::control_plane;

/// What proves who calls: a token, a signature. Asked anew for each call, so that it may be renewed.
///
/// [`WithCredentials`] makes an interceptor of it.
///
/// ```
/// use fulmar::{CallCredentials, CallInfo, Channel, MetadataMap, Status, WithCredentials};
///
/// struct Token(String);
///
/// impl CallCredentials for Token {
///     async fn add_to(&self, _call: &CallInfo, metadata: &mut MetadataMap) -> Result<(), Status> {
///         let value = format!("Bearer {}", self.0);
///         metadata.insert_sensitive("authorization", &value).map_err(|error| Status::internal(error.to_string()))
///     }
/// }
///
/// let channel = Channel::builder("http://127.0.0.1:50051")
///     .intercept(WithCredentials(Token("swordfish".to_owned())))
///     .build()?;
/// # Ok::<(), fulmar::ConnectError>(())
/// ```
pub trait CallCredentials: Send + Sync + 'static {
    /// Adds to the metadata of a call, as sensitive values where they are secret. It may wait; the deadline of the call goes on
    /// meanwhile.
    ///
    /// # Errors
    /// Ends the call, which is not sent, with this status: `UNAUTHENTICATED` for credentials that there are not, `UNAVAILABLE` for
    /// ones that cannot be had for the moment. A code that says something of the request or of the server's data (`OK`,
    /// `INVALID_ARGUMENT`, `NOT_FOUND`, `ALREADY_EXISTS`, `FAILED_PRECONDITION`, `ABORTED`, `OUT_OF_RANGE`, `DATA_LOSS`) becomes
    /// `INTERNAL` with the original in the text (gRFC A54).
    fn add_to(
        &self,
        call: &CallInfo,
        metadata: &mut MetadataMap,
    ) -> impl Future<Output = Result<(), Status>> + Send;
}

/// The interceptor of a client that adds credentials to its calls.
#[derive(Copy, Clone, Debug)]
pub struct WithCredentials<C>(pub C);

impl<C: CallCredentials> Interceptor for WithCredentials<C> {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        let CallHead { metadata, info, .. } = call;
        let added = self.0.add_to(info, metadata.get_mut()).await;
        added.map_err(|status| control_plane(status, "the source of credentials"))
    }
}
