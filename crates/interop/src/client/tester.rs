//! What all cases share.

use std::time::Duration;

use fulmar::Channel;
use fulmar::encoding::Gzip;

use super::additional_metadata::AdditionalMetadata;
use super::failure::{Failure, Outcome, expect_equal};
use super::options::Options;
use crate::proto::grpc::testing::test_service_client::TestServiceClient;
use crate::proto::grpc::testing::{Payload, PayloadType};

/// The longest message that is taken, in bytes. Cases ask for less than half a MiB; soak tests may be told to ask for more.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// For calls that set no deadline: so that a server that hangs fails the case.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// A connected client, for one case after the other.
#[derive(Clone, Debug)]
pub struct Tester {
    /// For calls without generated code.
    pub(crate) channel: Channel,
    /// The generated client, on the same channel.
    pub(crate) client: TestServiceClient,
}

impl Tester {
    /// Connects to the server that the options name.
    ///
    /// # Errors
    /// The server does not answer within the connect timeout.
    pub async fn connect(options: &Options) -> Result<Self, Failure> {
        let mut builder = Channel::builder(options.endpoint());
        if let Some(tls) = options.tls()? {
            builder = builder.tls(tls);
        }
        let channel = builder
            .receive_message_bytes_max(REPLY_BYTES_MAX)
            .timeout(CALL_TIMEOUT)
            .accept_compressed(Gzip::default())
            .intercept(AdditionalMetadata(options.additional_metadata.clone()))
            .connect()
            .await?;
        Ok(Self { client: TestServiceClient::new(channel.clone()), channel })
    }
}

/// A payload of zeros.
pub(crate) fn zeros(bytes: usize) -> Payload {
    Payload { r#type: PayloadType::Compressable.into(), body: vec![0; bytes] }
}

/// A reply has a payload of so many zeros.
///
/// # Errors
/// It has not.
pub(crate) fn expect_zeros(what: &str, payload: Option<&Payload>, bytes: usize) -> Outcome {
    let Some(payload) = payload else {
        return Err(Failure::new(format!("{what}: there is no payload")));
    };
    expect_equal(&format!("{what}: type of the payload"), payload.r#type, PayloadType::Compressable.into())?;
    expect_equal(&format!("{what}: length of the payload"), payload.body.len(), bytes)?;
    expect_equal(&format!("{what}: payload of zeros"), payload.body.iter().all(|byte| *byte == 0), true)
}
